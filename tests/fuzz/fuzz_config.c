/* Any text: read or refused with a message; what was read is written as YAML that reads back to the same. */
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok) {
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ndp_config c, back;
    require(ndp_config_init(&c) == NDP_OK && ndp_config_init(&back) == NDP_OK);
    char *text = strndup((const char *)data, size);
    require(text != NULL);
    if (ndp_config_parse(&c, (const char *)data, size, "fuzz") != NDP_OK)
        require(ndp_error_message()[0] != '\0');
    if (ndp_config_set(&c, text) != NDP_OK)
        require(ndp_error_message()[0] != '\0');
    ndp_str first = {0}, second = {0};
    require(ndp_config_write(&c, &first) == NDP_OK);
    require(ndp_config_parse(&back, first.data, first.length, "written") == NDP_OK);
    require(ndp_config_write(&back, &second) == NDP_OK);
    require(strcmp(first.data, second.data) == 0);
    ndp_str_release(&first);
    ndp_str_release(&second);
    ndp_config_release(&c);
    ndp_config_release(&back);
    free(text);
    return 0;
}
