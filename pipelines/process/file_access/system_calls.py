"""The system calls of Linux by number, and what each can bring into the process that makes it.

Calls that bring nothing pass. Calls that are followed are in a table here. Any other call, also one of a later kernel,
makes the inputs of the process unknown.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping

from msgspec import Struct

ALWAYS_ANEW = -2

# Positions of the arguments: folder (None for the current one) and path.
_Path = tuple[int | None, int]

# Calls that open a path: folder, path and position of the flags. `ALWAYS_ANEW` means that the call has no flags and
# creates or empties a file. `openat2` has further rules, and is followed on its own.
OPENS: Mapping[str, tuple[int | None, int, int]] = {
    "creat": (None, 0, ALWAYS_ANEW),
    "open": (None, 0, 1),
    "openat": (0, 1, 2),
}
# Calls that examine a path without opening it: folder, path and position of the flags (None for no flags).
LOOKS: Mapping[str, tuple[int | None, int, int | None]] = {
    "access": (None, 0, None),
    "chdir": (None, 0, None),
    "faccessat": (0, 1, None),
    "faccessat2": (0, 1, 3),
    "lstat": (None, 0, None),
    "newfstatat": (0, 1, 3),
    "stat": (None, 0, None),
    "statx": (0, 1, 2),
}
# Calls that return the target of a link.
LINKS: Mapping[str, _Path] = {"readlink": (None, 0), "readlinkat": (0, 1)}
# Calls that create a folder, a link or a special file.
MAKES: Mapping[str, _Path] = {
    "mkdir": (None, 0),
    "mkdirat": (0, 1),
    "mknod": (None, 0),
    "mknodat": (0, 1),
    "symlink": (None, 1),
    "symlinkat": (1, 2),
}
# Calls that link or rename one path to another: both paths and the position of the flags.
PAIRS: Mapping[str, tuple[_Path, _Path, int | None]] = {
    "link": ((None, 0), (None, 1), None),
    "linkat": ((0, 1), (2, 3), 4),
    "rename": ((None, 0), (None, 1), None),
    "renameat": ((0, 1), (2, 3), None),
    "renameat2": ((0, 1), (2, 3), 4),
}
# Calls that remove a name: their success shows whether it existed.
REMOVES: Mapping[str, _Path] = {"rmdir": (None, 0), "unlink": (None, 0), "unlinkat": (0, 1)}
# Calls that change a file or its metadata, so that it differs from what was read before.
CHANGES: Mapping[str, _Path] = {
    "chmod": (None, 0),
    "chown": (None, 0),
    "fchmodat": (0, 1),
    "fchmodat2": (0, 1),
    "fchownat": (0, 1),
    "futimesat": (0, 1),
    "lchown": (None, 0),
    "lremovexattr": (None, 0),
    "lsetxattr": (None, 0),
    "removexattr": (None, 0),
    "setxattr": (None, 0),
    "truncate": (None, 0),
    "utime": (None, 0),
    "utimensat": (0, 1),
    "utimes": (None, 0),
}
# Calls that return extended attributes.
ATTRIBUTES: Mapping[str, _Path] = {
    "getxattr": (None, 0),
    "lgetxattr": (None, 0),
    "listxattr": (None, 0),
    "llistxattr": (None, 0),
}
# Calls that run another program.
PROGRAMS: Mapping[str, _Path] = {"execve": (None, 0), "execveat": (0, 1)}

# Calls on memory, time, the process itself, or files that it opened before, which were seen then.
_BRINGING_NOTHING = """
    alarm arch_prctl brk capget capset clock_getres clock_gettime clock_nanosleep close close_range
    copy_file_range dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd
    eventfd2 exit exit_group fadvise64 fallocate fchdir fchmod fchown fcntl fdatasync flock fork fremovexattr
    fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake get_mempolicy
    get_robust_list get_thread_area getcpu getcwd getegid geteuid getgid getgroups getitimer
    getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage
    getsid getsockname getsockopt gettid gettimeofday getuid io_cancel io_destroy io_getevents io_pgetevents
    io_setup io_submit ioprio_get ioprio_set landlock_add_rule landlock_create_ruleset landlock_restrict_self
    lseek madvise map_shadow_stack mbind membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap
    modify_ldt move_pages mprotect mremap mseal msync munlock munlockall munmap nanosleep pause personality
    pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2
    prlimit64 process_madvise pselect6 pwrite64 pwritev pwritev2 read readahead readv recvfrom recvmmsg recvmsg
    remap_file_pages restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
    rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
    sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity
    sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select sendfile set_mempolicy
    set_mempolicy_home_node set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid setgroups
    setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid
    shutdown sigaltstack signalfd signalfd4 socketpair splice statfs sync sync_file_range syncfs sysinfo tee
    tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
    timerfd_gettime timerfd_settime times tkill umask uname vfork vmsplice wait4 waitid write writev
"""
HARMLESS = frozenset(_BRINGING_NOTHING.split())

# arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux, in the order of their numbers.
_X86_64 = """
    read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask
    rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select sched_yield mremap msync mincore madvise
    shmget shmat shmctl dup dup2 pause nanosleep getitimer alarm setitimer getpid sendfile socket connect accept
    sendto recvfrom sendmsg recvmsg shutdown bind listen getsockname getpeername socketpair setsockopt
    getsockopt clone fork vfork execve exit wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv
    msgctl fcntl flock fsync fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat
    link unlink symlink readlink chmod fchmod chown fchown lchown umask gettimeofday getrlimit getrusage sysinfo
    times ptrace getuid syslog getgid setuid setgid geteuid getegid setpgid getppid getpgrp setsid setreuid
    setregid getgroups setgroups setresuid getresuid setresgid getresgid getpgid setfsuid setfsgid getsid capget
    capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod uselib
    personality ustat statfs fstatfs sysfs getpriority setpriority sched_setparam sched_getparam
    sched_setscheduler sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval
    mlock munlock mlockall munlockall vhangup modify_ldt pivot_root _sysctl prctl arch_prctl adjtimex setrlimit
    chroot sync acct settimeofday mount umount2 swapon swapoff reboot sethostname setdomainname iopl ioperm
    create_module init_module delete_module get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg
    afs_syscall tuxcall security gettid readahead setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr
    listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr tkill time futex sched_setaffinity
    sched_getaffinity set_thread_area io_setup io_destroy io_getevents io_submit io_cancel get_thread_area
    lookup_dcookie epoll_create epoll_ctl_old epoll_wait_old remap_file_pages getdents64 set_tid_address
    restart_syscall semtimedop fadvise64 timer_create timer_settime timer_gettime timer_getoverrun timer_delete
    clock_settime clock_gettime clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes
    vserver mbind set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify
    mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get inotify_init
    inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat futimesat newfstatat
    unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll unshare set_robust_list
    get_robust_list splice tee sync_file_range vmsplice move_pages utimensat epoll_pwait signalfd timerfd_create
    eventfd fallocate timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2
    inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark
    prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns getcpu process_vm_readv
    process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create
    kexec_file_load bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect
    pkey_alloc pkey_free statx io_pgetevents rseq
"""
_ARM64 = """
    io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr lgetxattr
    fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr getcwd lookup_dcookie
    eventfd2 epoll_create1 epoll_ctl epoll_pwait dup dup3 fcntl inotify_init1 inotify_add_watch inotify_rm_watch
    ioctl ioprio_set ioprio_get flock mknodat mkdirat unlinkat symlinkat linkat renameat umount2 mount
    pivot_root nfsservctl statfs fstatfs truncate ftruncate fallocate faccessat chdir fchdir chroot fchmod
    fchmodat fchownat fchown openat close vhangup pipe2 quotactl getdents64 lseek read write readv writev
    pread64 pwrite64 preadv pwritev sendfile pselect6 ppoll signalfd4 vmsplice splice tee readlinkat newfstatat
    fstat sync fsync fdatasync sync_file_range timerfd_create timerfd_settime timerfd_gettime utimensat acct
    capget capset personality exit exit_group waitid set_tid_address unshare futex set_robust_list
    get_robust_list nanosleep getitimer setitimer kexec_load init_module delete_module timer_create
    timer_gettime timer_getoverrun timer_settime timer_delete clock_settime clock_gettime clock_getres
    clock_nanosleep syslog ptrace sched_setparam sched_setscheduler sched_getscheduler sched_getparam
    sched_setaffinity sched_getaffinity sched_yield sched_get_priority_max sched_get_priority_min
    sched_rr_get_interval restart_syscall kill tkill tgkill sigaltstack rt_sigsuspend rt_sigaction
    rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigreturn setpriority getpriority reboot
    setregid setgid setreuid setuid setresuid getresuid setresgid getresgid setfsuid setfsgid times setpgid
    getpgid getsid setsid getgroups setgroups uname sethostname setdomainname getrlimit setrlimit getrusage
    umask prctl getcpu gettimeofday settimeofday adjtimex getpid getppid getuid geteuid getgid getegid gettid
    sysinfo mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr msgget msgctl msgrcv msgsnd
    semget semctl semtimedop semop shmget shmctl shmat shmdt socket socketpair bind listen accept connect
    getsockname getpeername sendto recvfrom setsockopt getsockopt shutdown sendmsg recvmsg readahead brk munmap
    mremap add_key request_key keyctl clone execve mmap fadvise64 swapon swapoff mprotect msync mlock munlock
    mlockall munlockall mincore madvise remap_file_pages mbind get_mempolicy set_mempolicy migrate_pages
    move_pages rt_tgsigqueueinfo perf_event_open accept4 recvmmsg - - - - - - - - - - - - - - - - wait4
    prlimit64 fanotify_init fanotify_mark name_to_handle_at open_by_handle_at clock_adjtime syncfs setns
    sendmmsg process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp
    getrandom memfd_create bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2
    pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq kexec_file_load
"""
# From this number on, they are the same everywhere.
_FIRST_OF_ALL = 424
_OF_ALL = """
    pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig
    fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise epoll_pwait2
    mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret
    process_mrelease futex_waitv set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake
    futex_wait futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal
    setxattrat getxattrat listxattrat removexattrat open_tree_attr
"""
_NONE = "-"


class SystemCalls(Struct, frozen=True, kw_only=True):
    """The system calls of Linux on one processor architecture.

    Attributes:
        audit: The kernel's number of the architecture (AUDIT_ARCH_*).
        machine: The number of the architecture in programs (EM_* of elf.h).
    """

    audit: int
    machine: int
    names: Mapping[int, str]
    numbers: Mapping[str, int]


def _table(audit: int, machine: int, text: str) -> SystemCalls:
    names = dict(enumerate(text.split())) | dict(enumerate(_OF_ALL.split(), start=_FIRST_OF_ALL))
    names = {number: name for number, name in names.items() if name != _NONE}
    numbers = {name: number for number, name in names.items()}
    return SystemCalls(audit=audit, machine=machine, names=names, numbers=numbers)


def system_calls() -> SystemCalls | None:
    """Return the system calls of this processor; None on other systems and unknown processors."""
    if platform.system() != "Linux":
        return None
    if platform.machine() == "x86_64":
        return _table(0xC000003E, 62, _X86_64)
    return _table(0xC00000B7, 183, _ARM64) if platform.machine() == "aarch64" else None
