const char *ndp_build(void);
const char *build_of_other(void);
const char *build_of_other(void) { return ndp_build(); }
