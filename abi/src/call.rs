//! Call numbers and what each call takes and gives.
//!
//! A call is made with `syscall`: number in RAX, arguments in RDI, RSI, RDX, R10, R8, R9. On return
//! RAX is 0 or a negated [`Error`](crate::Error) code; RDI, RSI, RDX carry up to three results. RCX
//! and R11 are lost, all other registers kept. Native calls are told from Linux ones by the number:
//! RAX bits 63..12 equal those of [`NATIVE_BASE`]; any other value is a Linux system call and goes
//! to the context's proxy (`ContextProxy`), or ends the domain with `DeathCause::BadCall` if it
//! has none.
//!
//! Every call names its objects by [`Handle`](crate::Handle) in the caller's root Share; `RangeMap`
//! (its segment), `RangeNest` (what is nested), `SegmentStat`, `ShareAdd` and `ObjectName` take an
//! object in a shared share too. "new" results are handles placed by the kernel in the lowest free
//! slot. Errors that every call may return: `BadHandle` (empty slot or out of range), `WrongType`,
//! `NoRights`, `BadArgument`; further ones are listed at the call. A call that wants the core's own
//! pcore refuses a claim on another core with `OtherCore`: only `PcoreRun`, `PcoreHalt`,
//! `PcoreWatch` and `PcoreAddDevice` take one.

/// Bit 32 set and all other high bits clear marks a native call.
pub const NATIVE_BASE: u64 = 1 << 32;

/// True when `number` (RAX at SYSCALL) is a native call.
pub const fn is_native(number: u64) -> bool {
    number & !0xfff == NATIVE_BASE
}

macro_rules! calls {
    ($( $(#[$doc:meta])* $name:ident = $number:literal, )*) => {
        /// The kernel's calls.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Call { $( $(#[$doc])* $name = $number, )* }

        impl Call {
            /// All calls with their names, in numeric order: for tables, traces and the fuzzer.
            pub const ALL: &'static [(Call, &'static str)] = &[ $( (Call::$name, stringify!($name)), )* ];

            /// Decodes RAX; `None` for a native number without a call.
            #[inline(always)]
            pub const fn decode(number: u64) -> Option<Call> {
                match number.wrapping_sub(NATIVE_BASE) { $( $number => Some(Call::$name), )* _ => None }
            }

            /// The value for RAX.
            pub const fn number(self) -> u64 { NATIVE_BASE | self as u64 }
        }
    };
}

calls! {
    /// Does nothing. () → (). For measuring the cost of entry and exit.
    Null = 0,
    /// Writes text to the kernel's log. (pointer, length ≤ 512, pcore: POWER or `Handle::NONE`) →
    /// (). The kernel puts the domain's name in front of each line, `pelago: NAME: `; only who may
    /// end the machine may write in its name, `pelago: `. Whole lines stay whole, eight at most;
    /// control characters but tabs are shown as escapes, so no terminal obeys them. What a domain
    /// and those that share its part of the log (`DomainAlloc`) write faster than 16 KiB a second
    /// (64 KiB at once) is dropped, and counted in a later line; a line of a domain that may make
    /// code costs 8 KiB at least.
    Log = 1,
    /// Raw text to the console port. (console device handle: CONTROL, pointer, length ≤ 4096) → ().
    /// Only on core 0. `BadPointer`: what lies before the pages that cannot be read may be written.
    ConsoleWrite = 2,
    /// Ends the machine. (pcore: POWER, status 0..=255) → never.
    PowerOff = 3,
    /// One of this core's counters. (index, see `layout::counter`) → (value). `BadArgument` past
    /// the last.
    CounterRead = 4,
    /// Copies trace records of this core, oldest first. (pcore: CONTROL, pointer, bytes) → (bytes
    /// written, records lost). `BadPointer`: records that fit before that address are there, and
    /// gone from the trace.
    TraceRead = 5,

    /// Copies a capability inside the caller's share, with equal or fewer rights. (handle, rights)
    /// → (new). `NoSlot`.
    CapCopy = 8,
    /// Copies a notification capability with another badge. (ExecutionContext: CONTROL or Portal:
    /// CONTROL, rights, badge) → (new). `NoSlot`.
    CapMint = 9,
    /// Empties a slot; the object goes when its last capability goes. (handle) → ().
    CapDrop = 10,
    /// (handle) → (object type, object id, rights).
    CapStat = 11,
    /// Takes back what was derived from a capability by `CapCopy`, `CapMint`, `DomainGrant`,
    /// `DomainAlloc` (SELF_RAM) or as a notification to be kept, and what was derived from that;
    /// the capability itself stays. (handle) → (0, or 1 if there is more: call again; each call
    /// does a bounded part). A domain that nobody else can name afterwards ends. What was made or
    /// mapped through those capabilities stays: see `RamRevoke`.
    CapRevoke = 12,

    /// Makes a child account over the same memory. (ram: WRITE, limit_pages, turns) → (new ram).
    /// The child's use counts in each ancestor. Contexts whose time an account pays for share turns
    /// of the core with those of other accounts (decision 65): with `Handle::NONE` of `ram`; with
    /// another account (WRITE), of that one; with this core's pcore (CONTROL) it has turns of its
    /// own. `OtherCore` for the pcore of another. A limit is not a reservation.
    RamSplit = 16,
    /// (ram) → (limit_pages, used_pages, free_pages of the root it stands on).
    RamStat = 17,
    /// Takes contiguous free pages out of this core's root Ram for good, to give them to another
    /// core. (root ram: CONTROL, pages) → (physical address). `NoMemory`.
    RamCarve = 18,
    /// Adds pages carved on another core to this core's root Ram. (root ram: CONTROL, physical
    /// address, pages) → (). `BadArgument` outside memory, `Busy` if the root's region table is
    /// full.
    RamAdd = 19,
    /// Takes back all memory that an account and the accounts below it pay for. (ram: CONTROL) →
    /// (0, or 1 if there is more: call again; each call does a bounded part). Goes: every object
    /// paid there, wherever it is held, and every capability for the account but the one named and
    /// those it was derived from. First what acts: domains end with `DeathCause::Revoked` and their
    /// parents are told; so does the domain of a context whose object or time was paid there;
    /// devices are made quiet, semaphores and portals answer `PeerDead`. Then segments: no page is
    /// free before its translations are gone. Who touches one then faults. `BadArgument`: the
    /// caller's domain, context or time is paid there; ask somebody outside. A pool that is paid
    /// there goes on all cores: each takes apart what stands for it there, and the call says 1
    /// until the last has. What other cores imported of this memory is for their monitors to take
    /// back first.
    RamRevoke = 20,
    /// Gives an account turns of the core of its own, if it shares those of another (`RamSplit`).
    /// (ram: WRITE, this core's pcore: CONTROL) → (). What it pays for has them from now on, and
    /// accounts that are split from it later; those split before keep what they share. `OtherCore`
    /// for the pcore of another; `BadArgument` for the root; `NoMemory`: its parent cannot pay a
    /// page; `Busy`: it pays for more than 64 domains, contexts and the like.
    RamTurns = 21,

    /// (ram: WRITE, pages 1..=layout::SEGMENT_PAGES_MAX, flags: layout::segment::*, 0) → (new
    /// segment, physical address if CONTIGUOUS else 0). Zeroed; without EAGER pages appear at first
    /// touch. `NoMemory`, `NoSlot`. EAGER and CONTIGUOUS may take several steps (decision 60): the
    /// pages are charged as they are made, of a run all at once; nobody sees the segment before it
    /// is whole. What a call that was given up made goes with the context's next call of this kind,
    /// or with the context. COMMON, with EAGER only: `DomainFork` gives a child a segment of its
    /// own with the same pages, for both to write. `BadArgument`: the last argument is none that
    /// the kernel wrote.
    SegmentAlloc = 24,
    /// (ram: WRITE, segment: READ, mode: layout::copy::*) → (new segment). Copy-on-write shares
    /// pages until one side writes, copy-on-reference until the copy is read or either is written.
    /// Imported segments only plain, and only if they are RAM: else `BadArgument`. `NoMemory`. A
    /// contiguous source is always copied at once: its frames must stay. One of a pool is copied
    /// plainly only, else `BadArgument`; each page as it is when its turn comes, whatever other
    /// cores write meanwhile. For one moment of all of it, and to share pages: `ShareCopy`. Any
    /// copy may take several steps, as an eager `SegmentAlloc` (the argument after the mode is 0):
    /// what this core's programs write meanwhile is in the pages whose turn comes later.
    SegmentCopy = 25,
    /// (segment) → (pages, pages present, physical address if contiguous and the capability has the
    /// DMA right, else 0).
    SegmentStat = 26,
    /// Grows or shrinks, or frees pages inside. (segment: WRITE, pages, 0, 0) → (). Shrinking frees
    /// pages and unmaps them, from the end on, which may take several steps (decision 60); one that
    /// is given up leaves it longer. (segment: WRITE, 0, first page, number of pages) → (): the
    /// length stays, and mappings too; the pages are absent, so that the next touch finds zeroes.
    /// That may take several steps (decision 60), from the first page up; one that is given up, or
    /// refused as others made the segment shorter, leaves the rest as it was. `NoMemory`,
    /// `BadArgument` (contiguous, imported, common, or of a pool; pages past the end).
    SegmentSetPages = 27,
    /// A segment over memory that belongs to another core or to a device. (pcore: CONTROL, ram,
    /// physical address, pages, flags: layout::segment::UNCACHED) → (new segment). Owns no page.
    /// `NoMemory`.
    SegmentImport = 28,

    /// Places part of a segment. (address range: WRITE, virtual address, segment, first page in
    /// segment, pages, protection: layout::protection::*) → (). The segment's rights must cover the
    /// protection (`NoRights`). `Busy` if something is mapped there, or the segment has to do with
    /// `ShareCopy` and this is not the one range of its pool that may show it, `BadArgument`
    /// outside the user window or W and X together, `NoMemory`.
    RangeMap = 32,
    /// (address range: WRITE, virtual address, pages, 0) → (pages unmapped). Holes are no error.
    /// Splits mappings as needed: `NoMemory`, and then nothing has changed. May take several steps
    /// (decision 60), from the first address up; after each, all below where it is are gone for
    /// everybody. One that is given up, or refused in a later step as others mapped there or
    /// revoked the range, leaves the rest mapped. The fourth word is what the steps
    /// before have unmapped: `BadArgument` if it is more than there are addresses.
    RangeUnmap = 33,
    /// (address range: WRITE, virtual address, pages, protection) → (). Every page must be mapped
    /// by a segment whose capability had these rights when mapped. `NoMemory`, `BadArgument`,
    /// `NoRights`. May take several steps (decision 60; the fifth argument is 0): first all of it
    /// is looked at, and a refusal has changed nothing; then it changes from the first address up,
    /// and pages above where it is may still be used as before. One that is given up leaves some
    /// changed; what others unmap meanwhile is `BadArgument` when its turn comes.
    RangeProtect = 34,
    /// The mapping at or after an address. (address range: READ, virtual address) → (the three
    /// words of a `RangeEntry`). `NotFound` when none follows.
    RangeGet = 35,
    /// An empty range that can be nested. (ram: WRITE, pages, flags: layout::domain::WRITE_EXECUTE)
    /// → (new address range, its pages). Rounded up to 512, 512², or 512³ pages (2 MiB, 1 GiB, 512
    /// GiB): what one entry of the next larger kind of range takes. `BadArgument`: no pages, or
    /// more than that. `NoMemory`. Addresses in it begin at 0.
    RangeAlloc = 36,
    /// Shows a range, whole, in another one. (address range: WRITE, virtual address, address range,
    /// protection) → (). Whatever is or will be mapped there is seen, with at most that protection,
    /// which the rights of the second capability must cover (`NoRights`). Table pages are shared: a
    /// fault filled through one of the places serves all. The same range can be shown in many
    /// places. `Busy` if something is mapped there, `NoMemory`, `PeerDead` if either was revoked.
    /// `BadArgument`: not larger than the range to be shown (so there are no cycles), the address
    /// not a multiple of that one's size or its end outside the window, or code there may be
    /// writable and here not. `RangeUnmap` takes it out again; to unmap or protect a part of it is
    /// `BadArgument`: name the nested range itself.
    RangeNest = 37,
    /// Shows pages now that would be shown at their first touch, so that touching them does not
    /// fault. (address range: WRITE, virtual address, pages) → (pages done: at least 1, at most
    /// 128; go on after them). Absent pages are made; shared ones stay shared, but for those copied
    /// by reference. `BadArgument`: nothing that can be read is mapped at the first; `NoMemory` if
    /// there is no page for the first.
    RangeFill = 38,
    /// Makes a table of a page: an empty range as by `RangeAlloc`, whose uppermost table is the
    /// page of a contiguous segment, which goes. (segment: CONTROL, pages, flags) → (new address
    /// range, its pages). Paid by the segment's Ram. `Busy`: the page is mapped, or something else
    /// names the segment: unmap it, drop the copies. `BadArgument`: not contiguous, not one page,
    /// or no such size. `NoMemory`.
    RangeRetype = 39,

    /// A protection domain: root Share, root AddressRange, owner of what is made in it. (ram: WRITE
    /// that will pay for all its tables; limit = RamSplit before, flags, pcore: CONTROL or
    /// `Handle::NONE`, pointer, length ≤ 32, domain: READ or `Handle::NONE`) → (new domain with all
    /// rights, object id). The pointer is to its name in the log, ASCII without spaces and colons.
    /// It shares the last domain's part of the log, so that forks get what one program gets, or has
    /// one of its own. Without a pcore it has its maker's name and shares its maker's part, so that
    /// nobody can write in the name of another or gains by making domains. `NoMemory`; `PeerDead`
    /// if that domain has ended. A domain ends when the last capability for it outside its own
    /// share goes: whoever wants it alive keeps one.
    DomainAlloc = 40,
    /// Copies a capability into another domain's root share. (domain: WRITE, source handle: GRANT,
    /// rights) → (handle there). `NoSlot`.
    DomainGrant = 41,
    /// A capability for the domain's root address range. (domain: WRITE) → (new address range).
    DomainRange = 42,
    /// Ends a domain, freeing all it owns. (domain: CONTROL, status) → (). Its death notification
    /// follows when all is freed, and so does the end of this call; that takes several steps
    /// (decision 60), in which it is dead for all who ask. Also ends the caller if it names
    /// itself.
    DomainKill = 43,
    /// Ends the caller's own domain, as `DomainKill` does another. (status) → never.
    DomainExit = 44,
    /// (domain: READ, pointer to `DomainState`) → (). `BadPointer`: the part before that address
    /// may be written.
    DomainState = 45,
    /// Who is told when the domain has died and all it owned is freed. (domain: CONTROL,
    /// notification capability: NOTIFY) → (). Fires at once if that is so. Replaces an earlier one.
    DomainOnDeath = 46,
    /// Fills a child as a copy of the caller (Corey cfork, section 5.1). (child domain: WRITE, 0,
    /// 0) → (), paid by the child's own Ram. Each segment whose capability has the INHERIT right is
    /// copied copy-on-write into the *same slot* of the child's share, and each of its mappings is
    /// placed at the same address, where it allows no more than that capability; not so imported
    /// segments and those of a pool, which the child has neither in a slot nor mapped. One in two
    /// slots is one in the child's too, and the second allows no more than the first. May take
    /// several steps (decision 60): what the caller's other contexts write meanwhile is in the
    /// pages whose turn comes later, so a caller that wants one instant lets none of them run.
    /// `NoMemory`, and `Busy` if a slot or address is taken there: the child keeps what it got
    /// until then (slots in order, then mappings) and is to be killed, the caller has all it had.
    /// `BadArgument`: the child is the caller's own domain.
    DomainFork = 47,

    /// Makes a context. (ram: WRITE, domain: WRITE, virtual address of the control page, flags:
    /// layout::context::*, most priority 0..=7 that it may give) → (new execution context). The
    /// control page (one page, `ControlPage`) is mapped read-write there. `NoMemory`, `Busy`;
    /// `NoRights` for a maximum above the caller's own. In one's own domain no WRITE right on it is
    /// needed (threads).
    ContextAlloc = 56,
    /// Gives it time of its own. (ram: WRITE, execution context: CONTROL, priority 0..=7 (7 first),
    /// slice_us 100..=1_000_000) → (new scheduling context). `Busy` if it has one. `NoRights` for a
    /// priority above the most that the caller may give, whatever time it runs on; a monitor may
    /// give 7.
    ContextSchedule = 57,
    /// Starts it. (execution context: CONTROL, instruction pointer, stack pointer, first argument
    /// (RDI), second (RSI)) → (). `Busy` if started before, `BadArgument` for a non-canonical
    /// address.
    ContextStart = 58,
    /// Turns the caller's Linux calls and program faults into upcalls to the proxy. (call entry,
    /// upcall entry, stack top, flags: `layout::upcall`) → (). Needs the LINUX flag; may be called
    /// again. With TICKS the end of each slice arrives as an upcall, for a program's threads. See
    /// `control`.
    ContextProxy = 59,
    /// Sets FS or GS base of the caller. (0 = FS, 1 = GS; address) → (). For machines without
    /// FSGSBASE. `BadArgument` if not canonical.
    ContextBase = 60,
    /// Loads all registers from the control page's `program` and goes on there (return from an
    /// upcall). () → never, or `BadArgument`. Clears `in_proxy` itself: done by the proxy before
    /// the call, a notification in between would overwrite `program`.
    ContextResume = 61,
    /// Reports a context that has notifications pending but has not called Wait for this long:
    /// because it runs in circles, or waits for a semaphore or a caller. (execution context:
    /// CONTROL, limit_ns: at least `layout::context::WATCH_LIMIT_MIN_NS`, notification capability:
    /// NOTIFY) → (). 0 ends the watch. One report per stall. `BadArgument` for a shorter limit.
    ContextWatch = 62,
    /// Gives the rest of the slice to others of the same priority. () → ().
    Yield = 63,
    /// Ends a context: it never runs again, and whoever waits for it learns so (`PeerDead`).
    /// (execution context: CONTROL) → (), never if it is the caller's own. Its domain and the
    /// mapping of its control page stay. Portals into it lead nowhere; of very many some do so a
    /// few steps before it ends (decision 60). `PeerDead`: it has ended before.
    ContextEnd = 64,
    /// Where the caller's upcalls go, for a user-level scheduler of threads. (upcall entry or 0 for
    /// none, stack top, flags: `layout::upcall`) → (). `NoRights` for a context with the LINUX
    /// flag: it has `ContextProxy`. A fault that the kernel cannot resolve, badge bits of
    /// `upcall_mask`, and with TICKS the end of each slice arrive there as `control` says.
    ContextUpcall = 65,
    /// What ran on a scheduling context, whoever that was: its bill. (scheduling context: READ) →
    /// (nanoseconds since it was made, slice_us, priority).
    ScheduleStat = 66,
    /// Changes the length of slices; a current one that is longer is cut, and none begins anew.
    /// (scheduling context: CONTROL, slice_us 100..=1_000_000, period_us up to 60,000,000) → ().
    /// With a period, at least a slice long, a slice is the budget of each period: once it is
    /// spent, the time waits until the period ends, and whom it is donated to goes on with other
    /// time only. The first period begins now, each later one when the time first runs on a new
    /// budget, so in n periods on end it runs for n + 1 budgets at most. 0: no budget. `Busy` for a
    /// member of a gang.
    ScheduleSet = 67,
    /// Slows this core down: programs run in so many of each 8 milliseconds, the first of them.
    /// (pcore: CONTROL, 1..=8; 8: always) → (). `OtherCore` for the pcore of another. The kernel
    /// itself, its interrupts and wake-ups are not held up.
    PcoreThrottle = 68,
    /// Makes time a member of a gang: it runs in `[n * period + phase, + slice)` of the clock only,
    /// whole n. (pcore: CONTROL, scheduling context: CONTROL, period_us up to 60,000,000, slice_us
    /// 100..=1,000,000 and at most the period, phase_us below the period) → (). All cores have one
    /// clock (nanoseconds since boot), so members with the same three numbers run at the same times
    /// on their cores, without a message (decision 39). In its window it comes before other time of
    /// its priority and after that of higher ones; while its context waits others run. Outside it
    /// does not run, but others may lend its context theirs. (pcore, scheduling context, 0, 0, 0):
    /// at any time again. The pcore because those of the same priority stand back. A member keeps
    /// its windows until it leaves, gets others, or its context ends. `Busy`: they would at some
    /// time be open together with those of another member on this core, of whatever priority; take
    /// another phase, or a period that divides theirs or that theirs divides. Also `Busy` if the
    /// time has a budget, or the core has 64 members. `OtherCore` for the pcore of another,
    /// `PeerDead`: its context ended.
    ScheduleGang = 69,

    /// Sets the capability's badge bits at its execution context and makes it runnable if it waits.
    /// (ExecutionContext, RemoteContext or MAILBOX Portal: NOTIFY) → (). A portal's own badge
    /// counts; one that leads nowhere does nothing. Never blocks, never fails for a full queue.
    Notify = 72,
    /// Takes all pending badge bits, or sleeps until one comes. (deadline_ns since boot; 0 = poll,
    /// u64::MAX = none) → (bits; 0 = deadline passed). Idle point: frees those who donated to this
    /// context.
    Wait = 73,
    /// A number under which other cores may wake a local context, or come up at a local semaphore.
    /// (pcore: CONTROL, execution context, MAILBOX portal or semaphore, badge; a portal's own badge
    /// counts, a semaphore has none) → (wake slot 1..1024). `Busy` when all are taken. Freed with
    /// the context, portal or semaphore.
    WakeSlotAlloc = 74,
    /// A capability to notify a context of another core, or to come up at its semaphore. (pcore:
    /// CONTROL, ram, core, wake slot) → (new RemoteContext: NOTIFY). `BadArgument`.
    WakeSlotImport = 75,
    /// Frees one wake slot of a local context. (pcore: CONTROL, wake slot) → ().
    WakeSlotFree = 76,

    /// An entrance into a context of this core; a MAILBOX portal may lead nowhere yet
    /// (`Handle::NONE`). (ram: WRITE, execution context: CONTROL, badge, kind: layout::portal::*) →
    /// (new portal).
    PortalAlloc = 80,
    /// Calls through a portal, giving the callee the caller's time until it answers (NOVA donation
    /// and helping). RENDEZVOUS portal: (portal: CALL, word, word, word, word, deadline_ns) →
    /// (word, word, word); waits for `PortalReplyWait` of the callee. MAILBOX portal: (portal:
    /// CALL) → (); sets the badge bits, lends time until the callee reaches Wait, none to one that
    /// was not started. `Timeout`, `PeerDead`: what the callee did for it until then stays. A
    /// mailbox caller also goes on when it is itself notified, if the callee has time of its own.
    /// `Busy`: the callee waits for the caller, or more than 16 calls would wait for each other;
    /// one that is in line gets it later if the callee's own calls need the room.
    PortalCall = 81,
    /// Answers the current rendezvous caller if there is one and waits for the next. (word, word,
    /// word, deadline_ns) → (portal badge, word, word; R8 and R9: word, word; R10: 0). `Timeout`:
    /// nobody called until the deadline; the answer is given all the same, and making the call
    /// again answers nobody.
    PortalReplyWait = 82,
    /// Makes a MAILBOX portal lead to another context of this core, or nowhere (`Handle::NONE`): so
    /// whoever holds a component's doorbell keeps it when the component is restarted. (portal:
    /// CONTROL, execution context: CONTROL) → (). `BadArgument` for a rendezvous portal.
    PortalSet = 83,

    /// (ram: WRITE, count) → (new semaphore). `NoMemory`.
    SemaphoreAlloc = 88,
    /// (semaphore: WRITE, or RemoteContext of a semaphore's wake slot: NOTIFY, count to add ≥ 1) →
    /// (). `BadArgument` on overflow of 2^31. To another core the count goes by its mailbox, soon,
    /// and what overflows there is lost.
    SemaphoreUp = 89,
    /// (semaphore: READ, deadline_ns) → (). `Timeout`. First come, first served.
    SemaphoreDown = 90,

    /// Runs a claimed core that stands still. (pcore of `PcoreAlloc`: CONTROL, pointer to
    /// `pcore::Launch`) → (). The core starts, or goes on, with the one domain described there and
    /// nothing else; the segments are kept until it halts. `Busy` if it runs, `NoRights` if a
    /// segment's rights do not cover how it is shown or lack DMA, `BadArgument` for a segment that
    /// is not contiguous memory, places that overlap, or a pcore that was not claimed.
    PcoreRun = 96,
    /// (core) → (APIC id, NUMA node, running 0 or 1). Any domain may ask. On core 0 a claimed core
    /// runs from `PcoreRun` on until core 0 has heard that it halted. `BadArgument` past the last:
    /// the number of cores is found by asking.
    PcoreStat = 97,
    /// () → (core, number of cores, cores running).
    PcoreCurrent = 98,
    /// Takes a core out of the free pool, for whoever holds the capability. (pcore: CONTROL, ram,
    /// core) → (new pcore with all rights). When its last capability goes, the core is halted and
    /// free again. `Busy` if it is claimed, or was and still halts; `BadArgument` past the last or
    /// for core 0; `OtherCore`: the pool is core 0's, ask its monitor.
    PcoreAlloc = 99,
    /// Ends what runs on a core and lets it idle, its memory kept for the next run. (pcore:
    /// CONTROL) → (). A core's own pcore halts it at once; another's is halted soon, see
    /// `PcoreWatch`; one that stands still already stays so. `BadArgument` for core 0's own.
    PcoreHalt = 100,
    /// Who is told when a claimed core runs, and when it has halted, by order or because its first
    /// domain ended. (pcore of `PcoreAlloc`: CONTROL, notification capability: NOTIFY) → ().
    /// Replaces an earlier one. `BadArgument` for a pcore that was not claimed.
    PcoreWatch = 101,
    /// Makes a claimed core that stands still a kernel core: from its next run on it polls this too
    /// and runs no program. (pcore of `PcoreAlloc`: CONTROL, kind: `pcore::polled::*`, segment:
    /// READ | WRITE | DMA, offset, core, wake slot) → (index in its device list). Offset, core and
    /// wake slot are for `WORD` only. `Busy` if it runs or its list is full, `BadArgument`.
    PcoreAddDevice = 102,
    /// What a kernel core found at one of its devices. (index) → (kind, polls, requests or changes
    /// found). `NotFound` past the last, and on every core that is no kernel core.
    PcoreDeviceStat = 103,

    /// (index, pointer to `start::DeviceRecord`) → (). `NotFound` past the last. `BadPointer`: the
    /// part before that address may be written.
    DeviceList = 104,
    /// Exclusive claim. (pcore: CONTROL, ram, hardware id: `DeviceRecord::hwid`) → (new device with
    /// all rights). `Busy` if claimed, on whatever core; `NotFound`.
    DeviceAlloc = 105,
    /// A segment over a register window. (device: READ, ram, window 0..6) → (new segment, to be
    /// written only if the device is: WRITE; offset of the window in its first page). `NotFound`.
    DeviceWindow = 106,
    /// Configuration space. (device: READ, offset, width 1|2|4) → (value). `BadArgument`,
    /// `NotFound` if the device has none.
    DeviceConfRead = 107,
    /// (device: WRITE, offset, width, value) → (). Base addresses, interrupt and bridge registers
    /// and the extended space, from 256 on, are refused with `NoRights`.
    DeviceConfWrite = 108,
    /// Sends an interrupt of the device to a context of this core as a notification. (device:
    /// CONTROL, entry, notification capability: NOTIFY) → (). `NotFound`, `Busy` when out of
    /// vectors.
    DeviceInterrupt = 109,
    /// Lets the device read and write memory, or stops it. (device: CONTROL, 1 or 0) → (). 0 also
    /// masks its interrupts: then it is quiet.
    DeviceMaster = 111,
    /// (device with ports: READ, offset, width) → (value).
    DevicePortRead = 112,
    /// (device with ports: WRITE, offset, width, value) → ().
    DevicePortWrite = 113,

    /// How far a core is from the memory of another's node. (core, core) → (distance as the
    /// firmware gives it: 10 = near; their nodes). `BadArgument` past the last core.
    LocalityGet = 114,
    /// Objects alive on this core. (object type: an `ObjectType` as a number) → (count).
    /// `BadArgument` for a number that is no type.
    ObjectCount = 115,
    /// How a core is used. (pcore: READ, core) → (nanoseconds that programs had it in its current
    /// run, the kernel's work for them included; what it runs: `pcore::runs::*`; object id of the
    /// domain that claimed it, 0: nobody). `BadArgument` past the last core; `OtherCore`: claims
    /// are core 0's, ask its monitor.
    PcoreUse = 116,

    /// A share that several cores can use (decision 38). (share: WRITE, or `Handle::NONE`; ram:
    /// WRITE; pages; layout::lock::*; name; name) → (new share, object id). `NONE`: takes so many
    /// pages (8 up) of the Ram for a new pool; its first share comes into the caller's root share.
    /// Else the new one lies in the pool of `share` and is known there; Ram and pages are not
    /// looked at. What another core or a slow caller names in it is found without a lock; what
    /// changes it takes its lock. `NoMemory` (Ram, or pool), `Busy`: the core has 64 pools,
    /// `PeerDead`: the pool's Ram was revoked.
    ShareAlloc = 208,
    /// Makes a shared object known in a share (Corey share_addobj). (share: WRITE, or
    /// `Handle::NONE`; object: GRANT; rights) → (its handle there). One reference more. `NONE`: in
    /// the caller's root share, as an object of this core that its own Ram pays. `WrongType`: the
    /// object is private, `BadArgument`: of another pool, `Busy`: known there already, `NoSlot`,
    /// `NoMemory`, `PeerDead`.
    ShareAdd = 209,
    /// Takes an object out of a share (Corey share_delobj). (share: WRITE, object id) → (). One
    /// reference less; the object goes with its last. A name in the root share goes by `CapDrop`
    /// (Corey self_drop). `NotFound`, `PeerDead`.
    ShareRemove = 210,
    /// (share: READ) → (objects known in it, times its lock was taken, times somebody waited for
    /// it). `PeerDead`.
    ShareStat = 211,
    /// How another core finds the pool of a share. (pcore: CONTROL, share: GRANT) → (pool id). For
    /// monitors to tell each other. `PeerDead`.
    SharePool = 212,
    /// A name for the first share of another core's pool. (pcore: CONTROL, ram: WRITE, pool id) →
    /// (new share). `NotFound`: there is no such pool (any more), `PeerDead`, `NoMemory`, `NoSlot`.
    ShareImport = 213,
    /// A segment of a share's pool, known in the share. (share: WRITE, pages, name, name, flags:
    /// layout::segment::CONTIGUOUS) → (its handle there, object id). Zeroed; without the flag its
    /// pages appear at first touch, on whatever core, and are the pool's: who touches one when the
    /// pool is full ends with `DeathCause::NoMemory`. With it they are there now, side by side.
    /// `NoMemory`: the pool has no run of free pages that long (or for a word per page),
    /// `BadArgument`: no pages, too many, or another flag, `PeerDead`, `NoSlot`.
    ShareSegment = 214,
    /// (shared object) → (name, name, references). The name given when it was made (Corey
    /// obj_get_name). `WrongType`: private objects have no names.
    ObjectName = 215,
    /// An address range that several cores can show, with the very same table pages; its tables and
    /// mappings are paid by the pool. (share: WRITE, pages, layout::lock::*, name, name, flags:
    /// layout::domain::WRITE_EXECUTE) → (its handle in the share, object id, its pages). Sizes as
    /// of `RangeAlloc`. Give it a name in the root share (`ShareAdd`) to map in it; `RangeNest`
    /// shows it. Only segments of its pool can be mapped there: `WrongType` for a private one,
    /// `BadArgument` for one of another pool, or for a range. What maps, unmaps, protects and
    /// serves faults takes its lock. `RangeUnmap` and `RangeProtect` return when no core sees any
    /// more what was taken away. `BadArgument`: no such size, `NoMemory`: the pool is full,
    /// `PeerDead`, `NoSlot`.
    ShareRange = 216,
    /// What a shared range has counted. (address range: READ, layout::range_stat::*) → (three
    /// numbers, as said there). `WrongType`: it is a core's own.
    RangeStat = 217,
    /// A segment that shares all pages with another one of its pool until either is written.
    /// (share: WRITE, segment: READ, name, name) → (its handle in the share, object id). It has
    /// what the other had at one moment of the call, whatever writes meanwhile; who writes a page
    /// first takes a new one from the pool, and goes on when no core sees the old one in its place
    /// any more. From then on both segments are shown by one range of the pool at most, each by its
    /// own. `Busy`: a core's own range shows it, or several. `WrongType`: no segment, or a private
    /// one, `BadArgument`: of another pool, or made `CONTIGUOUS`, `NoMemory`: the pool has no room
    /// for a word per page, `PeerDead`, `NoSlot`.
    ShareCopy = 218,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_decode_to_their_calls_and_linux_numbers_to_none() {
        for (call, _) in Call::ALL {
            assert_eq!(Call::decode(call.number()), Some(*call));
        }
        for linux in [0u64, 59, 231, 0x4000_0000, u64::MAX, 0xffff_ffff] {
            assert!(!is_native(linux));
            assert_eq!(Call::decode(linux), None);
        }
        assert_eq!(Call::decode(NATIVE_BASE | 0xfff), None);
    }
}
