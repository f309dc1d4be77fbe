/* SPDX-License-Identifier: Apache-2.0
 *
 * libonload_ext: a program that uses onload/extensions.h is linked with this. Under bypass each call is passed on to the
 * preloaded library; without it, there is nothing to accelerate and each says so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#include "onload/extensions.h"

/* Exported by libbypass_preload.so (bypass/preload/src/hooks/extensions.rs). Calls are added at its end. */
struct extensions {
    size_t bytes;
    int (*is_present)(void);
    int (*fd_stat)(int, struct onload_stat *);
    int (*fd_check_feature)(int, enum onload_fd_feature);
    int (*move_fd)(int);
    int (*thread_set_spin)(enum onload_spin_type, int);
    int (*thread_get_spin)(unsigned *);
    int (*set_stackname)(enum onload_stackname_who, enum onload_stackname_scope, const char *);
    int (*stackname_save)(void);
    int (*stackname_restore)(void);
};

/* The library's call, or what is said without it. */
#define PASS_ON(call, arguments, otherwise)                                                                            \
    const struct extensions *library = dlsym(RTLD_DEFAULT, "wirespeed_onload_extensions");                             \
    return library && library->bytes >= sizeof *library ? library->call arguments : (otherwise)

int onload_is_present(void) { PASS_ON(is_present, (), 0); }

int onload_fd_stat(int fd, struct onload_stat *stat) { PASS_ON(fd_stat, (fd, stat), 0); }

int onload_fd_check_feature(int fd, enum onload_fd_feature feature) {
    PASS_ON(fd_check_feature, (fd, feature), -ENOSYS);
}

int onload_move_fd(int fd) { PASS_ON(move_fd, (fd), 0); }

int onload_thread_set_spin(enum onload_spin_type type, int spin) {
    PASS_ON(thread_set_spin, (type, spin), 0);
}

int onload_thread_get_spin(unsigned *state) { PASS_ON(thread_get_spin, (state), -ENOSYS); }

int onload_set_stackname(enum onload_stackname_who who, enum onload_stackname_scope scope, const char *stackname) {
    PASS_ON(set_stackname, (who, scope, stackname), 0);
}

int onload_stackname_save(void) { PASS_ON(stackname_save, (), 0); }

int onload_stackname_restore(void) { PASS_ON(stackname_restore, (), 0); }
