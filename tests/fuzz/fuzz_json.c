/* Any bytes: parsed or refused with a message, as by json-c's strict mode; what was parsed prints as JSON that parses
 * again. */
#include "../strict_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok) {
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct json_object *o = NULL, *again = NULL;
    require(!strict_json_disagrees((const char *)data, size));
    if (ndp_json_parse((const char *)data, size, "fuzz", &o) != NDP_OK) {
        require(ndp_error_message()[0] != '\0' && !o);
        return 0;
    }
    int64_t whole = 0;
    double number = 0;
    bool flag = false;
    const char *string = NULL;
    require(ndp_json_int(o, "fuzz", "a", 0, 10, &whole) == NDP_OK || whole == 0);
    require(ndp_json_double(o, "fuzz", "a", &number) == NDP_OK || number == 0);
    require(ndp_json_bool(o, "fuzz", "a", &flag) == NDP_OK || !flag);
    require(ndp_json_string(o, "fuzz", "a", &string) == NDP_OK || !string);
    const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
    require(text && ndp_json_parse(text, strlen(text), "printed", &again) == NDP_OK);
    json_object_put(o);
    json_object_put(again);
    return 0;
}
