//! Calls about memory, of which segments have far more than is in use.

use core::ffi::c_int;

use bypass_stack::process;
use bypass_stack::process::deferral::inside;
use bypass_sys::resident;

use crate::outcome::fail;
use crate::real;

#[no_mangle]
pub unsafe extern "C-unwind" fn mlockall(flags: c_int) -> c_int {
    if !process::is_started() {
        // SAFETY: numbers only.
        return unsafe { real::mlockall()(flags) };
    }
    match inside(|| resident::lock_all(flags)) {
        Ok(()) => 0,
        Err(error) => fail(error),
    }
}
