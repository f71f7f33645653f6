/* The schedules that are imported: those of the transformers' Trainer, by their names and lr_scheduler_kwargs. */
#include "import/imported.h"
#include "place.h"

static void axolotl_schedules(void **state) {
    (void)state;
    static const char *const cases[][4] = {
        /* file, schedule, warm-up, last ratio */
        {"lr_scheduler: linear\nwarmup_steps: 7", "linear", "7", "0"},
        {"lr_scheduler: constant_with_warmup\nwarmup_ratio: 0.155", "constant", "31", "0"},
        {"lr_scheduler: constant\nwarmup_steps: 7", "constant", "0", "0"},
        {"lr_scheduler: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.2}\nwarmup_steps: 1", "cosine", "2",
         "0.2"},
        {"lr_scheduler: cosine_warmup_with_min_lr\nlr_scheduler_kwargs: {min_lr: 2.0e-5}\nlearning_rate: 2.0e-4\n"
         "warmup_steps: 3",
         "cosine", "3", "0.1"},
        {"lr_scheduler: cosine\nlr_scheduler_kwargs: {num_cycles: 0.5}\nwarmup_steps: 3", "cosine", "3", "0"},
        {"lr_scheduler: cosine_with_restarts\nwarmup_steps: 3", "cosine_restarts", "3", "0"},
        {"lr_scheduler: inverse_sqrt\nlr_scheduler_kwargs: {timescale: 7}\nwarmup_steps: 7", "inverse_sqrt", "7", "0"},
        {"lr_scheduler: inverse_sqrt\nlr_scheduler_kwargs: {timescale: 10000}\nwarmup_steps: 0", "inverse_sqrt", "0",
         "0"},
        {"lr_scheduler: warmup_stable_decay\nwarmup_steps: 30\nlr_scheduler_kwargs:\n  {num_decay_steps: 50, "
         "num_stable_steps: 120, decay_type: cosine, warmup_type: linear, min_lr_ratio: 0.25}",
         "wsd", "30", "0.25"},
        {"warmup_steps: 0", "cosine", "0", "0"},
        {"warmup_ratio: 0", "cosine", "0", "0"},
        {"", "cosine", "6", "0"},
    };
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        char text[512];
        snprintf(text, sizeof text,
                 "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 200\n%s\n", cases[k][0]);
        imported i;
        CHECK_OK(import(&i, text, NULL));
        CHECK_KEYS(&i, {"schedule.name", cases[k][1]}, {"schedule.warmup_steps", cases[k][2]},
                   {"schedule.min_lr_ratio", cases[k][3]});
        release(&i);
    }
}

static void axolotl_keys_of_schedules(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        /* file, key, value */
        {"lr_scheduler: warmup_stable_decay\nlr_scheduler_kwargs: {num_decay_steps: 50}\nmax_steps: 200",
         "schedule.decay_ratio", "0.25"},
        {"lr_scheduler: warmup_stable_decay\nlr_scheduler_kwargs: {num_decay_steps: 7}\nmax_steps: 41",
         "schedule.decay_ratio", "0.17073170731707318"},
        {"lr_scheduler: cosine_with_restarts\nlr_scheduler_kwargs: {num_cycles: 4}\nnum_epochs: 2", "schedule.cycles",
         "4"},
        {"lr_scheduler: cosine_with_restarts\nmax_steps: 9", "schedule.cycles", "1"}};
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        char text[512];
        snprintf(text, sizeof text, "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\n%s\n", cases[k][0]);
        imported i;
        CHECK_OK(import(&i, text, NULL));
        CHECK_KEYS(&i, {cases[k][1], cases[k][2]});
        release(&i);
    }
}

/* text, message: its words */
static const char *const refused[][2] = {
    {"base_model: m\nlr_scheduler: rex\nmax_steps: 3\n",
     "'lr_scheduler: rex': schedule.name is one of: constant linear cosine wsd inverse_sqrt cosine_restarts"},
    {"base_model: m\nlr_scheduler: polynomial\nlr_scheduler_kwargs: {power: 2}\nmax_steps: 3\n",
     "'lr_scheduler_kwargs.power: 2': schedule.name is one of: constant"},
    {"base_model: m\nlr_scheduler_kwargs: {num_cycles: 2}\nmax_steps: 3\n",
     "their.yaml:2:23: 'lr_scheduler_kwargs.num_cycles: 2': other cosines fall once, without waves"},
    {"base_model: m\nlr_scheduler: cosine_with_restarts\nlr_scheduler_kwargs: {num_cycles: 1.5}\nmax_steps: 3\n",
     "'lr_scheduler_kwargs.num_cycles: 1.5': a schedule has whole cycles"},
    {"base_model: m\nlr_scheduler: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1.0e-3}\nlearning_rate: 1.0e-4\n",
     "'lr_scheduler_kwargs.min_lr: 0.001': it is more than learning_rate"},
    {"base_model: m\nlr_scheduler: inverse_sqrt\nlr_scheduler_kwargs: {timescale: 9}\nmax_steps: 30\nwarmup_steps: 3\n",
     "'lr_scheduler_kwargs.timescale: 9': the rate falls by the length of the warm-up"},
    {"base_model: m\nlr_scheduler: warmup_stable_decay\nmax_steps: 30\n",
     "'lr_scheduler: warmup_stable_decay': lr_scheduler_kwargs has no num_decay_steps; or --set schedule.decay_ratio"},
    {"base_model: m\nlr_scheduler: warmup_stable_decay\nlr_scheduler_kwargs: {num_decay_steps: 9}\nnum_epochs: 2\n",
     "'lr_scheduler_kwargs.num_decay_steps: 9': the steps of num_epochs are counted when the run starts"},
    {"base_model: m\nlr_scheduler: warmup_stable_decay\nlr_scheduler_kwargs: {num_decay_steps: 9}\nmax_steps: 8\n",
     "'lr_scheduler_kwargs.num_decay_steps: 9': it is more than max_steps"},
    {"base_model: m\nlr_scheduler: warmup_stable_decay\nmax_steps: 30\nwarmup_steps: 3\n"
     "lr_scheduler_kwargs: {num_decay_steps: 9, num_stable_steps: 17}\n",
     "'lr_scheduler_kwargs.num_stable_steps: 17': the rate falls in the last steps, after all others but the warm-up"},
    {"base_model: m\nlr_scheduler_kwargs: {decay_type: linear, warmup_type: 1-sqrt}\nmax_steps: 3\n",
     "'lr_scheduler_kwargs.decay_type: linear': the rate of wsd falls as a cosine"},
};

static void schedules_that_differ_are_refused(void **state) {
    (void)state;
    for (int k = 0; k < NDP_COUNT(refused); k++) {
        imported i;
        CHECK_FAILS(import(&i, refused[k][0], NULL), NDP_EINVAL, "");
        check_points_at(refused[k][1]);
        release(&i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(axolotl_schedules), cmocka_unit_test(axolotl_keys_of_schedules),
                                       cmocka_unit_test(schedules_that_differ_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
