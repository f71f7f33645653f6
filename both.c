#include <ndparallel/ndparallel.h>
#include <stdio.h>
const char *build_of_other(void);
int main(void) { return printf("%s and %s\\n", ndp_build(), build_of_other()) < 0; }
