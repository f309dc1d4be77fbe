"""Lines of perf become stacks, and each frame is of the kernel, a library or the program."""

from types import SimpleNamespace

import pytest

from wirespeed.errors import HostError, InputError
from wirespeed.runner import profile

PRINTED = """nginx
\tffffffff8200ec5b tcp_sendmsg ([kernel.kallsyms])
\tffffffffc0401000 veth_xmit ([veth])
\t           fde60 __GI___writev (/usr/lib/x86_64-linux-gnu/libc.so.6)
\t           a2b37 [unknown] (/usr/sbin/nginx)
\t           253ad main (/usr/sbin/nginx)

nginx
\t           1a000 ring::push::h0123456789abcdef (/x/target/release/libbypass_preload.so)
\t           253ad main (/usr/sbin/nginx)

C2 Compiler Thre
\t        7ffd0a2 __vdso_clock_gettime ([vdso])
\t    7f6854f1f875 int sun.nio.ch.SocketDispatcher.write0(long, int) (/tmp/perf-10213.map)
\t    7f6854f1f000 [unknown] (/tmp/perf-10213.map)
\t    7f00deadbeef [unknown] ([unknown])

"""


def test_frames_are_of_the_kernel_the_library_or_the_program():
    found = profile.folded(PRINTED.splitlines(), ["libbypass_preload.so"])
    assert found == {
        ("nginx", "main", "[nginx]", "__GI___writev", "veth_xmit_[k]", "tcp_sendmsg_[k]"): 1,
        ("nginx", "main", "ring::push_[l]"): 1,
        (
            "C2 Compiler Thre",
            "[unknown]",
            "[compiled Java]",
            "int sun.nio.ch.SocketDispatcher.write0(long, int)",
            "__vdso_clock_gettime",
        ): 1,
    }


def test_the_last_stack_counts_without_an_empty_line_and_long_ones_are_cut_at_the_root():
    deep = [f"\t  {number:x} f{number} (/bin/app)" for number in range(100)]
    ((frames, count),) = profile.folded(["app ", *deep], []).items()
    assert count == 1 and len(frames) == profile.DEPTH_MAX + 1
    assert frames[0] == "app" and frames[-1] == "f0"


def test_a_frame_never_holds_what_separates_frames():
    ((frames, _),) = profile.folded(["a;b", "\t 1 operator;x  y (/bin/app)", ""], []).items()
    assert frames == ("a b", "operator x y")


@pytest.mark.parametrize("answer", [HostError("perf: No such file or directory"), {"code": 2}])
def test_without_perf_nothing_is_measured(answer):
    def ask(*_, **__):
        if isinstance(answer, HostError):
            raise answer
        return answer

    host = SimpleNamespace(name="here", ask=ask, check_lost=lambda: None)
    with pytest.raises(InputError, match=r"--profile: perf does not run on here .*linux-perf"):
        profile.check({"here": host}, "here")
