//! close, which streams of stdio call too.

use core::ffi::c_int;

use bypass_stack::operations::{datagrams, descriptors};
use bypass_stack::process::deferral::inside;
use bypass_stack::process::{pool, table};
use bypass_sys::numbers;

use crate::cancel::point;
use crate::real;

#[no_mangle]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    // SAFETY: numbers only.
    let kernel = || unsafe { real::close()(fd) };
    if table::is_kernel(fd) {
        if table::is_datagram(fd) {
            inside(|| datagrams::close(fd));
        }
        let result = numbers::closing(kernel);
        pool::closed(fd);
        return result;
    }
    let work = || inside(|| descriptors::close(fd));
    point(work, || kernel() as isize) as c_int
}
