//! The table of Linux calls: all that Linux has on x86-64, answered here or not.
//!
//! A row of an answered call is its number, its name in [`Call`](crate::calls::Call), Linux's name
//! and arguments, its class with what answers it, and how far it is answered:
//!
//! - `immediate { … }` is answered from the proxy's own state, without a turn of the executor;
//! - `waits { … }` needs a server or time, and awaits it;
//! - `tries { … } or waits { … }` is tried at once first, and awaited if that gives `None`;
//! - `or sleeps { … }` before that: where there are other threads, the one that calls stands in the
//!   line that this gives, and nothing is awaited;
//! - `and replaces_registers`: if it succeeds, it has set all registers itself;
//! - `and parks_thread`: other threads that are ready go on before the one that calls;
//! - `and ends_thread`: where there are other threads, it ends the one that calls instead.
//!
//! A row of a call that gives ENOSYS is its number, its name and `absent`, so that the log can name
//! it.
//!
//! Invariants: numbers ascend, and every number of Linux has its row. What answers a call stands in
//! its row only: it is one expression over the arguments that the row names. The tokens mean
//! something where they are expanded, which is in matches, not in pointers to functions: what
//! answers is in `bare/syscall.rs`; names and numbers, and the page of what is answered, are in
//! `calls.rs`.

/// Gives all rows to a macro.
#[macro_export]
macro_rules! for_each_call {
    ($callback:ident) => { $callback! {
          0 Read "read" (descriptor, buffer, bytes)
            tries { fast_io::try_read(descriptor, buffer, bytes) }
            or sleeps { counters::sleeps(descriptor, buffer) }
            or waits { fast_io::read(descriptor, buffer, bytes).await }, Full;
          1 Write "write" (descriptor, buffer, bytes)
            tries { fast_io::try_write(descriptor, buffer, bytes) }
            or waits { io::with_sigpipe(fast_io::write(descriptor, buffer, bytes).await) }, Full;
          2 Open "open" (path, flags, mode)
            waits { files::open(HERE, path, flags, mode).await }, Partial("permission bits are kept, not enforced");
          3 Close "close" (descriptor) immediate { fd::close(descriptor) }, Full;
          4 Stat "stat" (path, status_at) waits { files::stat(HERE, path, status_at, 0).await }, Full;
          5 Fstat "fstat" (descriptor, status_at) waits { files::stat_descriptor(descriptor, status_at).await }, Full;
          6 Lstat "lstat" (path, status_at) waits { files::stat(HERE, path, status_at, NO_FOLLOW).await }, Full;
          7 Poll "poll" (entries_at, count, timeout_ms) waits { poll::poll(entries_at, count, timeout_ms).await }, Full;
          8 Lseek "lseek" (descriptor, offset, whence)
            waits { io::seek(descriptor, offset, whence).await }, Full;
          9 Mmap "mmap" (start, bytes, access, flags, descriptor, offset)
            waits { mapping::mmap([start, bytes, access, flags, descriptor, offset]).await },
            Partial("bytes of a file that are mapped with MAP_SHARED by a descriptor that can write belong to the program and its forked children: others get ENODEV, and EPERM if they write there; no SIGBUS past the end of a file, save where it was cut and is read as it is touched; at most 65,530 areas, 256 of them such bytes");
         10 Mprotect "mprotect" (start, bytes, access)
            tries { mapping::try_mprotect(start, bytes, access) }
            or waits { Box::pin(shared_files::change(start, bytes, || mapping::mprotect(start, bytes, access))).await },
            Full;
         11 Munmap "munmap" (start, bytes)
            tries { shared_files::change_unshared(start, bytes, || mapping::munmap(start, bytes)) }
            or waits { Box::pin(shared_files::change(start, bytes, || mapping::munmap(start, bytes))).await }, Full;
         12 Brk "brk" (end) immediate { mapping::brk(end) }, Partial("at most 992 MiB");
         13 RtSigaction "rt_sigaction" (signal, new_at, old_at, set_bytes)
            immediate { signals::action(signal, new_at, old_at, set_bytes) }, Full;
         14 RtSigprocmask "rt_sigprocmask" (how, new_at, old_at, set_bytes)
            immediate { signals::change_mask(how, new_at, old_at, set_bytes) }, Full;
         15 RtSigreturn "rt_sigreturn" () immediate { signals::sigreturn() } and replaces_registers, Full;
         16 Ioctl "ioctl" (descriptor, request, argument)
            waits { fd::device_control(descriptor, request, argument).await },
            Full;
         17 Pread64 "pread64" (descriptor, buffer, bytes, offset)
            waits { io::read(descriptor, buffer, bytes, Some(offset), None).await }, Full;
         18 Pwrite64 "pwrite64" (descriptor, buffer, bytes, offset)
            waits { io::write(descriptor, buffer, bytes, Some(offset), None).await }, Full;
         19 Readv "readv" (descriptor, vectors_at, count)
            waits { io::read_vectors(descriptor, vectors_at, count, None, None).await }, Full;
         20 Writev "writev" (descriptor, vectors_at, count)
            waits { io::with_sigpipe(io::write_vectors(descriptor, vectors_at, count, None, None).await) }, Full;
         21 Access "access" (path, mode)
            waits { files::access(HERE, path, mode, 0).await }, Full;
         22 Pipe "pipe" (pair_at) waits { fd::pipe(pair_at, 0).await }, Full;
         23 Select "select" (count, reads_at, writes_at, others_at, timeout_at)
            waits { poll::select([count, reads_at, writes_at, others_at, timeout_at]).await }, Full;
         24 SchedYield "sched_yield" ()
            tries { time::yield_to_threads() } or waits { time::yield_now().await } and parks_thread, Full;
         25 Mremap "mremap" (start, bytes, new_bytes, flags, new_start)
            tries { shared_files::change_unshared(start, bytes, || mapping::mremap(start, bytes, new_bytes, flags)) }
            or waits {
                Box::pin(shared_files::change(start, bytes, || mapping::mremap(start, bytes, new_bytes, flags))).await
            },
            Full;
         26 Msync "msync" (start, bytes, flags)
            tries { shared_files::change_unshared(start, bytes, || mapping::msync(start, bytes, flags)) }
            or waits { Box::pin(shared_files::synchronize(start, bytes, flags)).await }, Full;
         27 Mincore "mincore" (start, bytes, pages_at)
            immediate { mapping::mincore(start, bytes, pages_at) }, Partial("what of a file was not touched yet counts as absent, all else as present");
         28 Madvise "madvise" (start, bytes, advice)
            immediate { mapping::madvise(start, bytes, advice) },
            Full;
         29 Shmget "shmget" (key, bytes, flags) waits { system_v::get(key, bytes, flags).await }, Full;
         30 Shmat "shmat" (id, address, flags) waits { Box::pin(system_v::attach(id, address, flags)).await }, Full;
         31 Shmctl "shmctl" (id, command, argument)
            waits { system_v::control(id, command, argument).await }, Full;
         32 Dup "dup" (descriptor) immediate { fd::duplicate(descriptor) }, Full;
         33 Dup2 "dup2" (descriptor, to) immediate { fd::duplicate_to(descriptor, to, 0, false) }, Full;
         34 Pause "pause" () waits { signals::suspend(None).await }, Full;
         35 Nanosleep "nanosleep" (wanted_at, left_at) waits { time::sleep(1, 0, wanted_at, left_at).await }, Full;
         36 Getitimer "getitimer" (which, timer_at)
            waits { timers::interval(which, timer_at).await }, Full;
         37 Alarm "alarm" (seconds) waits { timers::alarm(seconds).await }, Full;
         38 Setitimer "setitimer" (which, new_at, old_at)
            waits { timers::set_interval(which, new_at, old_at).await }, Partial("those of used time are looked after each 4 ms at most, of a process that sleeps each 64 ms");
         39 Getpid "getpid" () immediate { process::id() }, Full;
         40 Sendfile "sendfile" (out, from, offset_at, bytes)
            waits { io::with_sigpipe(transfer::send_file(out, from, offset_at, bytes).await) }, Full;
         41 Socket "socket" (family, kind, protocol)
            waits { sockets::socket(family, kind, protocol).await },
            Full;
         42 Connect "connect" (descriptor, address_at, bytes)
            waits { sockets::connect(descriptor, address_at, bytes).await }, Full;
         43 Accept "accept" (descriptor, address_at, bytes_at)
            waits { sockets::accept(descriptor, address_at, bytes_at, 0).await }, Full;
         44 Sendto "sendto" (descriptor, buffer, bytes, flags, address_at, address_bytes)
            waits { sockets::send([descriptor, buffer, bytes, flags, address_at, address_bytes]).await },
            Partial("a message of AF_UNIX has at most 65,536 bytes, a datagram that leaves the machine 1,472");
         45 Recvfrom "recvfrom" (descriptor, buffer, bytes, flags, address_at, address_bytes_at)
            waits { sockets::receive([descriptor, buffer, bytes, flags, address_at, address_bytes_at]).await },
            Full;
         46 Sendmsg "sendmsg" (descriptor, header_at, flags)
            waits { sockets::send_message(descriptor, header_at, flags).await },
            Partial("as sendto");
         47 Recvmsg "recvmsg" (descriptor, header_at, flags)
            waits { sockets::receive_message(descriptor, header_at, flags).await },
            Full;
         48 Shutdown "shutdown" (descriptor, how) waits { sockets::shutdown(descriptor, how).await }, Full;
         49 Bind "bind" (descriptor, address_at, bytes)
            waits { sockets::bind(descriptor, address_at, bytes).await }, Full;
         50 Listen "listen" (descriptor, backlog) waits { sockets::listen(descriptor, backlog).await }, Full;
         51 Getsockname "getsockname" (descriptor, address_at, bytes_at)
            waits { sockets::name(descriptor, address_at, bytes_at, false).await }, Full;
         52 Getpeername "getpeername" (descriptor, address_at, bytes_at)
            waits { sockets::name(descriptor, address_at, bytes_at, true).await }, Full;
         53 Socketpair "socketpair" (family, kind, protocol, pair_at)
            waits { sockets::pair(family, kind, protocol, pair_at).await }, Full;
         54 Setsockopt "setsockopt" (descriptor, level, option, value_at, bytes)
            waits { sockets::set_option(descriptor, level, option, value_at, bytes).await },
            Full;
         55 Getsockopt "getsockopt" (descriptor, level, option, value_at, bytes_at)
            waits { sockets::option(descriptor, level, option, value_at, bytes_at).await },
            Full;
         56 Clone "clone" (flags, stack, parent_id_at, child_id_at, thread_pointer)
            tries { fork::thread_by_clone([flags, stack, parent_id_at, child_id_at, thread_pointer]) }
            or waits { fork::clone([flags, stack, parent_id_at, child_id_at, thread_pointer]).await },
            Partial("threads share the process's one core");
         57 Fork "fork" ()
            waits { fork::fork(false).await },
            Partial("descriptor flags that F_SETFL changes and timeouts of sockets are no longer shared after it");
         58 Vfork "vfork" ()
            waits { fork::fork(true).await },
            Partial("memory is copied: the parent sees what the child changed within 4 KiB of its stack, above where it called, and nothing else");
            // Boxed, since it is by far the longest of these futures.
         59 Execve "execve" (path, arguments_at, environment_at)
            waits { Box::pin(exec::execve(path, arguments_at, environment_at)).await } and replaces_registers, Full;
         60 Exit "exit" (status) waits { process::exit(status).await } and ends_thread, Full;
         61 Wait4 "wait4" (id, status_at, options, usage_at)
            waits { process::wait4(id, status_at, options, usage_at).await },
            Partial("of the usage only the time, all as the program's own");
         62 Kill "kill" (id, signal) waits { process::kill(id, signal).await }, Full;
         63 Uname "uname" (names_at) waits { process::names(names_at).await }, Full;
         64 "semget" absent;
         65 "semop" absent;
         66 "semctl" absent;
         67 Shmdt "shmdt" (address) immediate { system_v::detach(address) }, Full;
         68 "msgget" absent;
         69 "msgsnd" absent;
         70 "msgrcv" absent;
         71 "msgctl" absent;
         72 Fcntl "fcntl" (descriptor, command, argument)
            tries { fd::control(descriptor, command, argument) }
            or waits { fd::control_at_server(descriptor, command, argument).await },
            Full;
         73 Flock "flock" (descriptor, operation) waits { locks::whole(descriptor, operation).await }, Full;
         74 Fsync "fsync" (descriptor) waits { io::synchronize(descriptor, true).await }, Full;
         75 Fdatasync "fdatasync" (descriptor) waits { io::synchronize(descriptor, false).await }, Full;
         76 Truncate "truncate" (path, bytes) waits { files::truncate(path, bytes).await }, Full;
         77 Ftruncate "ftruncate" (descriptor, bytes) waits { io::resize(descriptor, bytes, false).await }, Full;
         78 Getdents "getdents" (descriptor, buffer, bytes)
            waits { io::entries(descriptor, buffer, bytes, EntryForm::Old).await }, Full;
         79 Getcwd "getcwd" (buffer, bytes) immediate { files::current(buffer, bytes) }, Full;
         80 Chdir "chdir" (path) waits { files::change_directory(path).await }, Full;
         81 Fchdir "fchdir" (descriptor) waits { files::change_directory_to(descriptor).await }, Full;
         82 Rename "rename" (from, to) waits { files::rename(HERE, from, HERE, to, 0).await }, Full;
         83 Mkdir "mkdir" (path, mode) waits { files::make_directory(HERE, path, mode).await }, Full;
         84 Rmdir "rmdir" (path) waits { files::remove(HERE, path, true).await }, Full;
         85 Creat "creat" (path, mode)
            waits { files::open(HERE, path, u64::from(O_CREAT | O_WRONLY | O_TRUNC), mode).await }, Full;
         86 Link "link" (from, to) waits { files::link(HERE, from, HERE, to, 0).await }, Full;
         87 Unlink "unlink" (path) waits { files::remove(HERE, path, false).await }, Full;
         88 Symlink "symlink" (target, path) waits { files::make_link(target, HERE, path).await }, Full;
         89 Readlink "readlink" (path, buffer, bytes) waits { files::read_link(HERE, path, buffer, bytes).await }, Full;
         90 Chmod "chmod" (path, mode) waits { files::change(HERE, path, true, files::permissions(mode)).await }, Full;
         91 Fchmod "fchmod" (descriptor, mode)
            waits { files::change_descriptor(descriptor, files::permissions(mode)).await },
            Partial("of files; accepted without effect for others");
         92 Chown "chown" (path, user, group)
            waits { files::change(HERE, path, true, files::owner(user, group)).await }, Full;
         93 Fchown "fchown" (descriptor, user, group)
            waits { files::change_descriptor(descriptor, files::owner(user, group)).await },
            Partial("of files; accepted without effect for others");
         94 Lchown "lchown" (path, user, group)
            waits { files::change(HERE, path, false, files::owner(user, group)).await }, Full;
         95 Umask "umask" (mask) immediate { files::set_mask(mask) }, Full;
         96 Gettimeofday "gettimeofday" (time_at, zone_at)
            immediate { time::time_of_day(time_at, zone_at) }, Partial("the time zone is zero");
         97 Getrlimit "getrlimit" (resource, limit_at) immediate { process::limit(resource, limit_at) }, Full;
         98 Getrusage "getrusage" (who, usage_at)
            waits { time::resources(who, usage_at).await },
            Partial("all time counts as the program's own; a thread's is as CLOCK_THREAD_CPUTIME_ID has it; of memory what is used now");
         99 Sysinfo "sysinfo" (info_at) waits { time::system(info_at).await }, Partial("uptime and process count");
        100 Times "times" (times_at)
            waits { time::times(times_at).await }, Partial("all time counts as the program's own");
        101 "ptrace" absent;
        102 Getuid "getuid" () immediate { identity::id(true, |ids| ids.real) }, Full;
        103 "syslog" absent;
        104 Getgid "getgid" () immediate { identity::id(false, |ids| ids.real) }, Full;
        105 Setuid "setuid" (user)
            waits { identity::set(true, user).await },
            Partial("judged as on Linux; the process's, where Linux has ids of threads, and nothing else is refused by them");
        106 Setgid "setgid" (group)
            waits { identity::set(false, group).await },
            Partial("judged as on Linux; the process's, where Linux has ids of threads, and nothing else is refused by them");
        107 Geteuid "geteuid" () immediate { identity::id(true, |ids| ids.effective) }, Full;
        108 Getegid "getegid" () immediate { identity::id(false, |ids| ids.effective) }, Full;
        109 Setpgid "setpgid" (process, group) waits { process::set_group(process, group).await }, Full;
        110 Getppid "getppid" () tries { process::parent() } or waits { process::ask_parent().await }, Full;
        111 Getpgrp "getpgrp" () waits { process::group(0).await }, Full;
        112 Setsid "setsid" () waits { process::new_session().await }, Full;
        113 Setreuid "setreuid" (real, effective)
            waits { identity::set_two(true, [real, effective]).await },
            Partial("judged as on Linux; the process's, where Linux has ids of threads, and nothing else is refused by them");
        114 Setregid "setregid" (real, effective)
            waits { identity::set_two(false, [real, effective]).await },
            Partial("judged as on Linux; the process's, where Linux has ids of threads, and nothing else is refused by them");
        115 Getgroups "getgroups" (count, groups_at) immediate { identity::groups(count, groups_at) }, Full;
        116 Setgroups "setgroups" (count, groups_at)
            waits { identity::set_groups(count, groups_at).await }, Partial("as setuid; at most 32 groups");
        117 Setresuid "setresuid" (real, effective, saved)
            waits { identity::set_all(true, [real, effective, saved]).await },
            Partial("judged as on Linux; the process's, where Linux has ids of threads, and nothing else is refused by them");
        118 Getresuid "getresuid" (real_at, effective_at, saved_at)
            immediate { identity::tell(true, [real_at, effective_at, saved_at]) }, Full;
        119 Setresgid "setresgid" (real, effective, saved)
            waits { identity::set_all(false, [real, effective, saved]).await },
            Partial("judged as on Linux; the process's, where Linux has ids of threads, and nothing else is refused by them");
        120 Getresgid "getresgid" (real_at, effective_at, saved_at)
            immediate { identity::tell(false, [real_at, effective_at, saved_at]) }, Full;
        121 Getpgid "getpgid" (process) waits { process::group(process).await }, Full;
        122 "setfsuid" absent;
        123 "setfsgid" absent;
        124 Getsid "getsid" (process) waits { process::session(process).await }, Full;
        125 Capget "capget" (header_at, data_at)
            immediate { identity::capabilities(header_at, data_at) },
            Full;
        126 Capset "capset" (header_at, data_at)
            waits { identity::set_capabilities(header_at, data_at).await }, Full;
        127 RtSigpending "rt_sigpending" (set_at, set_bytes) immediate { signals::pending(set_at) }, Full;
        128 RtSigtimedwait "rt_sigtimedwait" (set_at, info_at, timeout_at, set_bytes)
            waits { signals::wait_for(set_at, info_at, timeout_at, set_bytes).await }, Full;
        129 RtSigqueueinfo "rt_sigqueueinfo" (process, signal, info_at)
            waits { signals::queue(process, None, signal, info_at).await },
            Partial("at most 64 wait for a process, and for each thread");
        130 RtSigsuspend "rt_sigsuspend" (mask_at, mask_bytes)
            waits { signals::suspend(Some(user::read(mask_at)?)).await }, Full;
        131 Sigaltstack "sigaltstack" (new_at, old_at) immediate { signals::alternate_stack(new_at, old_at) }, Full;
        132 Utime "utime" (path, times_at) waits { files::set_times_s(path, times_at).await }, Full;
        133 Mknod "mknod" (path, mode, device)
            waits { unnamed::make_node(HERE, path, mode).await }, Full;
        134 "uselib" absent;
        135 "personality" absent;
        136 "ustat" absent;
        137 Statfs "statfs" (path, status_at) waits { files::file_system(path, status_at).await }, Full;
        138 Fstatfs "fstatfs" (descriptor, status_at)
            waits { files::file_system_of(descriptor, status_at).await }, Full;
        139 "sysfs" absent;
        140 Getpriority "getpriority" (which, who)
            immediate { scheduling::priority(which, who) }, Partial("others have niceness 0");
        141 Setpriority "setpriority" (which, who, priority)
            immediate { scheduling::set_priority(which, who, priority) }, Full;
        142 SchedSetparam "sched_setparam" (id, parameters_at)
            tries { scheduling::of_own(id, || scheduling::set_policy(None, parameters_at)) }
            or waits { scheduling::of_another(id, || scheduling::set_policy(None, parameters_at)).await }, Partial("priority 0");
        143 SchedGetparam "sched_getparam" (id, parameters_at)
            tries { scheduling::of_own(id, || scheduling::parameters(parameters_at)) }
            or waits { scheduling::of_another(id, || scheduling::parameters(parameters_at)).await }, Full;
        144 SchedSetscheduler "sched_setscheduler" (id, policy, parameters_at)
            tries { scheduling::of_own(id, || scheduling::set_policy(Some(policy), parameters_at)) }
            or waits { scheduling::of_another(id, || scheduling::set_policy(Some(policy), parameters_at)).await }, Full;
        145 SchedGetscheduler "sched_getscheduler" (id)
            tries { scheduling::of_own(id, || scheduling::policy()) }
            or waits { scheduling::of_another(id, || scheduling::policy()).await }, Partial("SCHED_OTHER");
        146 SchedGetPriorityMax "sched_get_priority_max" (policy)
            immediate { scheduling::priority_bound(policy, 99) }, Full;
        147 SchedGetPriorityMin "sched_get_priority_min" (policy)
            immediate { scheduling::priority_bound(policy, 1) }, Full;
        148 SchedRrGetInterval "sched_rr_get_interval" (id, interval_at)
            tries { scheduling::of_own(id, || scheduling::interval(interval_at)) }
            or waits { scheduling::of_another(id, || scheduling::interval(interval_at)).await }, Full;
        149 Mlock "mlock" (start, bytes) immediate { Ok(0) }, Partial("accepted: what the program can write is never paged out");
        150 Munlock "munlock" (start, bytes) immediate { Ok(0) }, Full;
        151 Mlockall "mlockall" (flags) immediate { mapping::lock_all(flags) }, Full;
        152 Munlockall "munlockall" () immediate { Ok(0) }, Full;
        153 "vhangup" absent;
        154 "modify_ldt" absent;
        155 "pivot_root" absent;
        156 "_sysctl" absent;
        157 Prctl "prctl" (option, argument)
            tries { process::prctl(option, argument) }
            or waits { process::prctl_at_server(option, argument).await }, Full;
        158 ArchPrctl "arch_prctl" (which, address) immediate { threads::base(which, address) }, Full;
        159 "adjtimex" absent;
        160 Setrlimit "setrlimit" (resource, limit_at)
            immediate { process::set_limit(resource, limit_at) },
            Partial("a hard limit beyond what there is gives EPERM");
        161 "chroot" absent;
        162 Sync "sync" () waits { io::synchronize_all().await }, Full;
        163 "acct" absent;
        164 Settimeofday "settimeofday" (time_at, zone_at)
            immediate { time::set(time_at) }, Partial("EPERM: the clock is the machine's");
        165 "mount" absent;
        166 "umount2" absent;
        167 "swapon" absent;
        168 "swapoff" absent;
        169 "reboot" absent;
        170 Sethostname "sethostname" (name_at, bytes) waits { process::name_host(false, name_at, bytes).await }, Full;
        171 Setdomainname "setdomainname" (name_at, bytes)
            waits { process::name_host(true, name_at, bytes).await }, Full;
        172 "iopl" absent;
        173 "ioperm" absent;
        174 "create_module" absent;
        175 "init_module" absent;
        176 "delete_module" absent;
        177 "get_kernel_syms" absent;
        178 "query_module" absent;
        179 "quotactl" absent;
        180 "nfsservctl" absent;
        181 "getpmsg" absent;
        182 "putpmsg" absent;
        183 "afs_syscall" absent;
        184 "tuxcall" absent;
        185 "security" absent;
        186 Gettid "gettid" () immediate { threads::id() }, Full;
        187 Readahead "readahead" (descriptor, offset, bytes) immediate { fd::exists(descriptor) }, Full;
        188 Setxattr "setxattr" (path, name_at, value_at, bytes, flags)
            waits { attributes::set(Of::Path { path, follows: true }, [name_at, value_at, bytes, flags]).await },
            Partial("of files of a volume on a disk; EOPNOTSUPP for others, and for access lists");
        189 Lsetxattr "lsetxattr" (path, name_at, value_at, bytes, flags)
            waits { attributes::set(Of::Path { path, follows: false }, [name_at, value_at, bytes, flags]).await },
            Partial("of files of a volume on a disk; EOPNOTSUPP for others, and for access lists");
        190 Fsetxattr "fsetxattr" (descriptor, name_at, value_at, bytes, flags)
            waits { attributes::set(Of::Descriptor(descriptor), [name_at, value_at, bytes, flags]).await },
            Partial("of files of a volume on a disk; EOPNOTSUPP for others, and for access lists");
        191 Getxattr "getxattr" (path, name_at, value_at, bytes)
            waits { attributes::get(Of::Path { path, follows: true }, name_at, value_at, bytes).await },
            Partial("of files of a volume on a disk; EOPNOTSUPP for others, and for access lists");
        192 Lgetxattr "lgetxattr" (path, name_at, value_at, bytes)
            waits { attributes::get(Of::Path { path, follows: false }, name_at, value_at, bytes).await },
            Partial("of files of a volume on a disk; EOPNOTSUPP for others, and for access lists");
        193 Fgetxattr "fgetxattr" (descriptor, name_at, value_at, bytes)
            waits { attributes::get(Of::Descriptor(descriptor), name_at, value_at, bytes).await },
            Partial("of files of a volume on a disk; EOPNOTSUPP for others, and for access lists");
        194 Listxattr "listxattr" (path, names_at, bytes)
            waits { attributes::list(Of::Path { path, follows: true }, names_at, bytes).await }, Full;
        195 Llistxattr "llistxattr" (path, names_at, bytes)
            waits { attributes::list(Of::Path { path, follows: false }, names_at, bytes).await }, Full;
        196 Flistxattr "flistxattr" (descriptor, names_at, bytes)
            waits { attributes::list(Of::Descriptor(descriptor), names_at, bytes).await }, Full;
        197 Removexattr "removexattr" (path, name_at)
            waits { attributes::remove(Of::Path { path, follows: true }, name_at).await },
            Partial("of files of a volume on a disk; EOPNOTSUPP for others, and for access lists");
        198 Lremovexattr "lremovexattr" (path, name_at)
            waits { attributes::remove(Of::Path { path, follows: false }, name_at).await },
            Partial("of files of a volume on a disk; EOPNOTSUPP for others, and for access lists");
        199 Fremovexattr "fremovexattr" (descriptor, name_at)
            waits { attributes::remove(Of::Descriptor(descriptor), name_at).await },
            Partial("of files of a volume on a disk; EOPNOTSUPP for others, and for access lists");
        200 Tkill "tkill" (thread, signal)
            waits { process::kill_thread(None, thread, signal).await },
            Partial("of threads of other processes only the first");
        201 Time "time" (time_at) immediate { time::seconds(time_at) }, Full;
        202 Futex "futex" (at, operation, value, second, second_at, third)
            tries { futex::try_futex([at, operation, value, second, second_at, third]) }
            or sleeps { futex::sleeps([at, operation, value, second, second_at, third]) }
            or waits { futex::wait([at, operation, value, second, second_at, third]).await },
            Partial("locks with an owner between threads of one process only");
        203 SchedSetaffinity "sched_setaffinity" (id, bytes, set_at)
            tries { scheduling::of_own(id, || scheduling::set_affinity(bytes, set_at)) }
            or waits { scheduling::cores_of_another(id, || scheduling::set_affinity(bytes, set_at)).await }, Partial("one core");
        204 SchedGetaffinity "sched_getaffinity" (id, bytes, set_at)
            tries { scheduling::of_own(id, || scheduling::affinity(bytes, set_at)) }
            or waits { scheduling::cores_of_another(id, || scheduling::affinity(bytes, set_at)).await }, Partial("one core");
        205 "set_thread_area" absent;
        206 "io_setup" absent;
        207 "io_destroy" absent;
        208 "io_getevents" absent;
        209 "io_submit" absent;
        210 "io_cancel" absent;
        211 "get_thread_area" absent;
        212 "lookup_dcookie" absent;
        213 EpollCreate "epoll_create" (size) immediate { poll::create(0) }, Full;
        214 "epoll_ctl_old" absent;
        215 "epoll_wait_old" absent;
        216 "remap_file_pages" absent;
        217 Getdents64 "getdents64" (descriptor, buffer, bytes)
            waits { io::entries(descriptor, buffer, bytes, EntryForm::New).await }, Full;
        218 SetTidAddress "set_tid_address" (id_at) immediate { futex::set_id_address(id_at) }, Full;
        219 "restart_syscall" absent;
        220 "semtimedop" absent;
        221 Fadvise64 "fadvise64" (descriptor, offset, bytes, advice)
            immediate { fd::advise(descriptor, advice) }, Full;
        222 TimerCreate "timer_create" (clock, event_at, id_at)
            immediate { timers::create(clock, event_at, id_at) },
            Partial("32 timers; an interval below half a millisecond is told at its times and counted");
        223 TimerSettime "timer_settime" (id, flags, new_at, old_at)
            waits { timers::set(id, flags, new_at, old_at).await }, Full;
        224 TimerGettime "timer_gettime" (id, timer_at) waits { timers::state(id, timer_at).await }, Full;
        225 TimerGetoverrun "timer_getoverrun" (id) immediate { timers::overrun(id) }, Full;
        226 TimerDelete "timer_delete" (id) waits { timers::delete(id).await }, Full;
        227 ClockSettime "clock_settime" (clock, time_at)
            immediate { time::set_clock(clock, time_at) }, Full;
        228 ClockGettime "clock_gettime" (clock, time_at)
            tries { time::clock(clock, time_at) } or waits { time::of_another(clock, time_at).await },
            Partial("CLOCK_THREAD_CPUTIME_ID is the time for which the thread was the one of its process that ran, also while other processes had the core, but no more than the process used; no clocks of threads of other processes");
        229 ClockGetres "clock_getres" (clock, time_at) immediate { time::resolution(clock, time_at) }, Full;
        230 ClockNanosleep "clock_nanosleep" (clock, flags, wanted_at, left_at)
            waits { time::sleep(clock, flags, wanted_at, left_at).await }, Full;
        231 ExitGroup "exit_group" (status) waits { process::exit(status).await }, Full;
        232 EpollWait "epoll_wait" (set, events_at, count, timeout_ms)
            tries { poll::try_wait_set(set, events_at, count, timeout_ms) }
            or waits { poll::wait_set([set, events_at, count, timeout_ms, 0, 0], false).await }, Full;
        233 EpollCtl "epoll_ctl" (set, operation, descriptor, event_at)
            immediate { poll::change(set, operation, descriptor, event_at) },
            Partial("a set that a child inherits is a copy");
        234 Tgkill "tgkill" (process, thread, signal)
            waits { process::kill_thread(Some(process), thread, signal).await },
            Partial("of threads of other processes only the first");
        235 Utimes "utimes" (path, times_at) waits { files::set_times_us(HERE, path, times_at).await }, Full;
        236 "vserver" absent;
        237 "mbind" absent;
        238 "set_mempolicy" absent;
        239 "get_mempolicy" absent;
        240 "mq_open" absent;
        241 "mq_unlink" absent;
        242 "mq_timedsend" absent;
        243 "mq_timedreceive" absent;
        244 "mq_notify" absent;
        245 "mq_getsetattr" absent;
        246 "kexec_load" absent;
        247 Waitid "waitid" (kind, id, info_at, options, usage_at)
            waits { process::waitid(kind, id, info_at, options, usage_at).await },
            Partial("of the usage only the time");
        248 "add_key" absent;
        249 "request_key" absent;
        250 "keyctl" absent;
        251 "ioprio_set" absent;
        252 "ioprio_get" absent;
        253 "inotify_init" absent;
        254 "inotify_add_watch" absent;
        255 "inotify_rm_watch" absent;
        256 "migrate_pages" absent;
        257 Openat "openat" (directory, path, flags, mode)
            waits { files::open(directory, path, flags, mode).await },
            Partial("permission bits are kept, not enforced");
        258 Mkdirat "mkdirat" (directory, path, mode)
            waits { files::make_directory(directory, path, mode).await }, Full;
        259 Mknodat "mknodat" (directory, path, mode, device)
            waits { unnamed::make_node(directory, path, mode).await }, Full;
        260 Fchownat "fchownat" (directory, path, user, group, flags)
            waits { files::change_by(directory, path, flags, files::owner(user, group)).await }, Full;
        261 Futimesat "futimesat" (directory, path, times_at)
            waits { files::set_times_us(directory, path, times_at).await }, Full;
        262 Newfstatat "newfstatat" (directory, path, status_at, flags)
            waits { files::stat(directory, path, status_at, flags).await }, Full;
        263 Unlinkat "unlinkat" (directory, path, flags)
            waits { files::remove_by(directory, path, flags).await }, Full;
        264 Renameat "renameat" (from_directory, from, to_directory, to)
            waits { files::rename(from_directory, from, to_directory, to, 0).await }, Full;
        265 Linkat "linkat" (from_directory, from, to_directory, to, flags)
            waits { files::link(from_directory, from, to_directory, to, flags).await }, Full;
        266 Symlinkat "symlinkat" (target, directory, path)
            waits { files::make_link(target, directory, path).await }, Full;
        267 Readlinkat "readlinkat" (directory, path, buffer, bytes)
            waits { files::read_link(directory, path, buffer, bytes).await }, Full;
        268 Fchmodat "fchmodat" (directory, path, mode)
            waits { files::change(directory, path, true, files::permissions(mode)).await }, Full;
        269 Faccessat "faccessat" (directory, path, mode)
            waits { files::access(directory, path, mode, 0).await }, Full;
        270 Pselect6 "pselect6" (count, reads_at, writes_at, others_at, timeout_at, mask_at)
            waits { poll::select_masked([count, reads_at, writes_at, others_at, timeout_at, mask_at]).await }, Full;
        271 Ppoll "ppoll" (entries_at, count, timeout_at, mask_at, mask_bytes)
            waits { poll::poll_masked(entries_at, count, timeout_at, mask_at, mask_bytes).await }, Full;
        272 "unshare" absent;
        273 SetRobustList "set_robust_list" (head_at, bytes) immediate { futex::set_robust_list(head_at, bytes) }, Full;
        274 GetRobustList "get_robust_list" (id, head_at, bytes_at)
            immediate { futex::robust_list(id, head_at, bytes_at) }, Partial("of the own process");
        275 Splice "splice" (from, from_at, to, to_at, bytes, flags)
            waits { io::with_sigpipe(transfer::splice([from, from_at, to, to_at, bytes, flags]).await) },
            Partial("copies; two readers of one pipe at once may both get its bytes");
        276 Tee "tee" (from, to, bytes, flags)
            waits { io::with_sigpipe(transfer::tee(from, to, bytes, flags).await) },
            Partial("copies, at most 64 KiB a call");
        277 SyncFileRange "sync_file_range" (descriptor, offset, bytes, flags)
            immediate { fd::bring_out(descriptor, flags) }, Full;
        278 "vmsplice" absent;
        279 "move_pages" absent;
        280 Utimensat "utimensat" (directory, path, times_at, flags)
            waits { files::set_times(directory, path, times_at, flags).await }, Full;
        281 EpollPwait "epoll_pwait" (set, events_at, count, timeout_ms, mask_at, mask_bytes)
            tries { if mask_at == 0 { poll::try_wait_set(set, events_at, count, timeout_ms) } else { None } }
            or waits { poll::wait_set([set, events_at, count, timeout_ms, mask_at, mask_bytes], true).await }, Full;
        282 Signalfd "signalfd" (descriptor, set_at, set_bytes)
            immediate { signals::open(descriptor, set_at, set_bytes, 0) },
            Partial("the set of a signalfd that a child inherits is a copy; not sent by SCM_RIGHTS");
        283 TimerfdCreate "timerfd_create" (clock, flags)
            waits { timers::open(clock, flags).await },
            Partial("an interval below half a millisecond makes ready at its times; all expirations are counted");
        284 Eventfd "eventfd" (count)
            immediate { counters::create(count, 0) }, Partial("a counter that exec closes and that a vfork child changes before its exec is the child's own");
        285 Fallocate "fallocate" (descriptor, mode, offset, bytes)
            waits { io::allocate(descriptor, mode, offset, bytes).await }, Full;
        286 TimerfdSettime "timerfd_settime" (descriptor, flags, new_at, old_at)
            waits { timers::set_opened(descriptor, flags, new_at, old_at).await }, Full;
        287 TimerfdGettime "timerfd_gettime" (descriptor, timer_at)
            waits { timers::opened_state(descriptor, timer_at).await }, Full;
        288 Accept4 "accept4" (descriptor, address_at, bytes_at, flags)
            waits { sockets::accept(descriptor, address_at, bytes_at, flags).await }, Full;
        289 Signalfd4 "signalfd4" (descriptor, set_at, set_bytes, flags)
            immediate { signals::open(descriptor, set_at, set_bytes, flags) }, Partial("as signalfd");
        290 Eventfd2 "eventfd2" (count, flags)
            immediate { counters::create(count, flags) }, Partial("a counter that exec closes and that a vfork child changes before its exec is the child's own");
        291 EpollCreate1 "epoll_create1" (flags) immediate { poll::create(flags) }, Full;
        292 Dup3 "dup3" (descriptor, to, flags) immediate { fd::duplicate_to(descriptor, to, flags, true) }, Full;
        293 Pipe2 "pipe2" (pair_at, flags) waits { fd::pipe(pair_at, flags).await }, Full;
        294 "inotify_init1" absent;
        295 Preadv "preadv" (descriptor, vectors_at, count, offset, offset_high)
            waits { io::read_vectors(descriptor, vectors_at, count, Some(offset), None).await }, Full;
        296 Pwritev "pwritev" (descriptor, vectors_at, count, offset, offset_high)
            waits { io::write_vectors(descriptor, vectors_at, count, Some(offset), None).await }, Full;
        297 RtTgsigqueueinfo "rt_tgsigqueueinfo" (process, thread, signal, info_at)
            waits { signals::queue(process, Some(thread), signal, info_at).await },
            Partial("as rt_sigqueueinfo; of threads of other processes only the first");
        298 "perf_event_open" absent;
        299 Recvmmsg "recvmmsg" (descriptor, headers_at, count, flags, timeout_at)
            waits { messages::receive_many([descriptor, headers_at, count, flags, timeout_at]).await },
            Full;
        300 "fanotify_init" absent;
        301 "fanotify_mark" absent;
        302 Prlimit64 "prlimit64" (process, resource, new_at, old_at)
            tries { process::limit_of(process, resource, new_at, old_at) }
            or waits { process::limit_of_another(process, resource).await },
            Partial("as setrlimit; of other processes EPERM");
        303 "name_to_handle_at" absent;
        304 "open_by_handle_at" absent;
        305 "clock_adjtime" absent;
        306 Syncfs "syncfs" (descriptor) waits { io::synchronize_tree(descriptor).await }, Full;
        307 Sendmmsg "sendmmsg" (descriptor, headers_at, count, flags)
            waits { messages::send_many(descriptor, headers_at, count, flags).await }, Partial("as sendto");
        308 "setns" absent;
        309 Getcpu "getcpu" (core_at, node_at, cache_at) immediate { scheduling::core(core_at, node_at) }, Full;
        310 "process_vm_readv" absent;
        311 "process_vm_writev" absent;
        312 "kcmp" absent;
        313 "finit_module" absent;
        314 "sched_setattr" absent;
        315 "sched_getattr" absent;
        316 Renameat2 "renameat2" (from_directory, from, to_directory, to, flags)
            waits { files::rename(from_directory, from, to_directory, to, flags).await },
            Full;
        317 "seccomp" absent;
        318 Getrandom "getrandom" (buffer, bytes, flags) immediate { process::random(buffer, bytes, flags) }, Full;
        319 MemfdCreate "memfd_create" (name_at, flags)
            waits { unnamed::create_memory(name_at, flags).await },
            Partial("mapped as any file");
        320 "kexec_file_load" absent;
        321 "bpf" absent;
        322 Execveat "execveat" (directory, path, arguments_at, environment_at, flags)
            waits { Box::pin(exec::execve_at([directory, path, arguments_at, environment_at, flags])).await }
            and replaces_registers, Full;
        323 "userfaultfd" absent;
        324 Membarrier "membarrier" (command, flags, core) immediate { scheduling::barrier(command, flags) }, Full;
        325 Mlock2 "mlock2" (start, bytes, flags) immediate { mapping::lock(flags) }, Full;
        326 CopyFileRange "copy_file_range" (from, from_at, to, to_at, bytes, flags)
            waits { transfer::copy_range([from, from_at, to, to_at, bytes, flags]).await },
            Partial("copies; ranges of one file that overlap are not refused");
        327 Preadv2 "preadv2" (descriptor, vectors_at, count, offset, high, flags)
            waits { io::read_by_flags([descriptor, vectors_at, count, offset, high, flags]).await },
            Full;
        328 Pwritev2 "pwritev2" (descriptor, vectors_at, count, offset, high, flags)
            waits { io::write_by_flags([descriptor, vectors_at, count, offset, high, flags]).await },
            Full;
        329 "pkey_mprotect" absent;
        330 "pkey_alloc" absent;
        331 "pkey_free" absent;
        332 Statx "statx" (directory, path, flags, mask, status_at)
            waits { files::statx([directory, path, flags, mask, status_at]).await }, Full;
        333 "io_pgetevents" absent;
        334 "rseq" absent;
        335 "uretprobe" absent;
        336 "uprobe" absent;
        424 PidfdSendSignal "pidfd_send_signal" (handle, signal, info_at, flags)
            waits { process_handles::signal(handle, signal, info_at, flags).await }, Full;
        425 "io_uring_setup" absent;
        426 "io_uring_enter" absent;
        427 "io_uring_register" absent;
        428 "open_tree" absent;
        429 "move_mount" absent;
        430 "fsopen" absent;
        431 "fsconfig" absent;
        432 "fsmount" absent;
        433 "fspick" absent;
        434 PidfdOpen "pidfd_open" (process, flags)
            waits { process_handles::open(process, flags).await }, Partial("of processes, not of threads");
        435 Clone3 "clone3" (wishes_at, bytes)
            tries { fork::thread_by_clone3(wishes_at, bytes) } or waits { fork::clone_by(wishes_at, bytes).await },
            Partial("as clone; no set_tid");
        436 CloseRange "close_range" (first, last, flags) immediate { fd::close_range(first, last, flags) }, Full;
        437 Openat2 "openat2" (directory, path, how_at, bytes)
            waits { files::open_how(directory, path, how_at, bytes).await },
            Partial("as openat; RESOLVE_CACHED gives EAGAIN, other resolve flags EINVAL");
        438 "pidfd_getfd" absent;
        439 Faccessat2 "faccessat2" (directory, path, mode, flags)
            waits { files::access(directory, path, mode, flags).await }, Full;
        440 "process_madvise" absent;
        441 "epoll_pwait2" absent;
        442 "mount_setattr" absent;
        443 "quotactl_fd" absent;
        444 "landlock_create_ruleset" absent;
        445 "landlock_add_rule" absent;
        446 "landlock_restrict_self" absent;
        447 "memfd_secret" absent;
        448 "process_mrelease" absent;
        449 "futex_waitv" absent;
        450 "set_mempolicy_home_node" absent;
        451 "cachestat" absent;
        452 "fchmodat2" absent;
        453 "map_shadow_stack" absent;
        454 "futex_wake" absent;
        455 "futex_wait" absent;
        456 "futex_requeue" absent;
        457 "statmount" absent;
        458 "listmount" absent;
        459 "lsm_get_self_attr" absent;
        460 "lsm_set_self_attr" absent;
        461 "lsm_list_modules" absent;
        462 "mseal" absent;
        463 "setxattrat" absent;
        464 "getxattrat" absent;
        465 "listxattrat" absent;
        466 "removexattrat" absent;
        467 "open_tree_attr" absent;
        468 "file_getattr" absent;
        469 "file_setattr" absent;
    } };
}
