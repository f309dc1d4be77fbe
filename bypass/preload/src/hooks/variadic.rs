//! Functions with `...`: a few instructions make the list that their v-forms take.
//!
//! Only where the list is known: elsewhere libc's own are used, which know nothing of connections.

use core::ffi::{c_char, c_int, c_void};

use bypass_stack::process::table;

use super::{data, exec};
use crate::outcome::set_errno;
use crate::real;

/// Writes formatted text; a short write ends it, as in libc.
unsafe fn print(fd: c_int, text: *mut c_char, length: c_int) -> c_int {
    let mut done = 0usize;
    while done < length.max(0) as usize {
        // SAFETY: inside the text of that length.
        let at = unsafe { text.add(done) };
        // SAFETY: as above.
        match unsafe { data::write(fd, at.cast(), length as usize - done) } {
            written if written > 0 => done += written as usize,
            _ => break,
        }
    }
    // SAFETY: vasprintf has allocated it.
    unsafe { libc::free(text.cast()) };
    if done == length.max(0) as usize {
        length
    } else {
        -1
    }
}

extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, list: *mut c_void) -> c_int;
}

#[no_mangle]
pub unsafe extern "C-unwind" fn vdprintf(
    fd: c_int,
    format: *const c_char,
    list: *mut c_void,
) -> c_int {
    if table::is_kernel(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::vdprintf()(fd, format, list) };
    }
    let mut text = core::ptr::null_mut();
    // SAFETY: the caller's format and list.
    match unsafe { vasprintf(&mut text, format, list) } {
        length if length >= 0 => {
            // SAFETY: the text that was just made.
            unsafe { print(fd, text, length) }
        }
        _ => {
            set_errno(libc::ENOMEM);
            -1
        }
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn __vdprintf_chk(
    fd: c_int,
    level: c_int,
    format: *const c_char,
    list: *mut c_void,
) -> c_int {
    if table::is_kernel(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::vdprintf_chk()(fd, level, format, list) };
    }
    // SAFETY: the caller's arguments.
    unsafe { vdprintf(fd, format, list) }
}

#[cfg(target_arch = "x86_64")]
mod lists {
    use super::*;

    /// va_list as the ABI defines it.
    #[repr(C)]
    pub struct List {
        used: u32,
        used_floating: u32,
        stack: *const usize,
        registers: *const usize,
    }

    impl List {
        unsafe fn next(&mut self) -> usize {
            if self.used < 48 {
                // SAFETY: one of the six registers that the entry has saved.
                let value = unsafe { *self.registers.byte_add(self.used as usize) };
                self.used += 8;
                return value;
            }
            // SAFETY: the caller has passed as many arguments as are asked for.
            let value = unsafe { *self.stack };
            // SAFETY: as above.
            self.stack = unsafe { self.stack.add(1) };
            value
        }

        /// Pointers up to null, with it.
        unsafe fn pointers(&mut self) -> Vec<*const c_char> {
            let mut all = Vec::new();
            loop {
                // SAFETY: the list ends with null, which has not come yet.
                let one = unsafe { self.next() } as *const c_char;
                all.push(one);
                if one.is_null() {
                    return all;
                }
            }
        }
    }

    unsafe extern "C" fn list_of_execl(path: *const c_char, list: *mut List) -> c_int {
        // SAFETY: the entry below has made the list.
        let all = unsafe { (*list).pointers() };
        // SAFETY: the caller's arguments.
        unsafe { exec::execv(path, all.as_ptr()) }
    }

    unsafe extern "C" fn list_of_execlp(file: *const c_char, list: *mut List) -> c_int {
        // SAFETY: as above.
        let all = unsafe { (*list).pointers() };
        // SAFETY: the caller's arguments.
        unsafe { exec::execvp(file, all.as_ptr()) }
    }

    unsafe extern "C" fn list_of_execle(path: *const c_char, list: *mut List) -> c_int {
        // SAFETY: as above.
        let all = unsafe { (*list).pointers() };
        // SAFETY: the environment follows the null.
        let environment = unsafe { (*list).next() } as *const *const c_char;
        // SAFETY: the caller's arguments.
        unsafe { exec::execve(path, all.as_ptr(), environment) }
    }

    /// Saves the registers as the ABI demands, and calls `$to` with the list in register `$at`;
    /// `$named` arguments come before it.
    macro_rules! variadic {
        ($name:ident, $named:literal, $at:literal, $to:path) => {
            #[no_mangle]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "sub rsp, 216",
                    "mov [rsp + 32], rdi",
                    "mov [rsp + 40], rsi",
                    "mov [rsp + 48], rdx",
                    "mov [rsp + 56], rcx",
                    "mov [rsp + 64], r8",
                    "mov [rsp + 72], r9",
                    "test al, al",
                    "je 2f",
                    "movaps [rsp + 80], xmm0",
                    "movaps [rsp + 96], xmm1",
                    "movaps [rsp + 112], xmm2",
                    "movaps [rsp + 128], xmm3",
                    "movaps [rsp + 144], xmm4",
                    "movaps [rsp + 160], xmm5",
                    "movaps [rsp + 176], xmm6",
                    "movaps [rsp + 192], xmm7",
                    "2:",
                    concat!("mov dword ptr [rsp + 8], 8 * ", $named),
                    "mov dword ptr [rsp + 12], 48",
                    "lea rax, [rsp + 224]",
                    "mov [rsp + 16], rax",
                    "lea rax, [rsp + 32]",
                    "mov [rsp + 24], rax",
                    concat!("lea ", $at, ", [rsp + 8]"),
                    "call {to}",
                    "add rsp, 216",
                    "ret",
                    to = sym $to,
                )
            }
        };
    }

    variadic!(dprintf, "2", "rdx", vdprintf);
    variadic!(__dprintf_chk, "3", "rcx", __vdprintf_chk);
    variadic!(execl, "1", "rsi", list_of_execl);
    variadic!(execlp, "1", "rsi", list_of_execlp);
    variadic!(execle, "1", "rsi", list_of_execle);
}
