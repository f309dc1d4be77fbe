//! What happens when the library is loaded.

use bypass_stack::lifecycle::{exec, handover, serving};
use bypass_stack::process;

/// Run by the loader after libc is ready.
#[used]
#[link_section = ".init_array"]
static START: extern "C" fn() = start;

extern "C" fn start() {
    process::read_environment();
    process::complaints()
        .iter()
        .for_each(|one| process::log::complain(one));
    serving::provide();
    crate::hooks::uring::switch_libuv_off();
    crate::hooks::exec::remember_environment();
    crate::forking::follow();
    if let Ok(record) = std::env::var(exec::VARIABLE) {
        exec::adopt(&record);
        crate::hooks::stdio::replace_standard_streams();
    }
    handover::adopt_inherited();
}
