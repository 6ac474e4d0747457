//! The kernel's calls, a row each: number, wrapper's name, name, what is special about it,
//! arguments, words that say how far it is, results, and the errors that do not follow from these,
//! each as `cause: remedy`, several separated by a semicolon; a row whose error has no remedy does
//! not compile.
//!
//! [`for_each_call!`] passes all rows to a macro: the numbers and tables of `abi`, the kernel's
//! decoding and dispatch, the wrappers of `lib/sys` and the fuzzer's arguments are made from them,
//! and `docs/calls.md` is what they say in prose. Kinds of arguments and results stand in
//! [`kinds`](super::kinds), flags in [`Flag`](super::Flag).

/// Passes the rows of all calls to the macro of that name.
#[macro_export]
macro_rules! for_each_call {
    ($callback:ident) => { $callback! {

/// Does nothing: for measuring the cost of entry and exit.
0 fn null = Null [Ring] () -> ();

/// Writes text to the kernel's log. The kernel puts the domain's name in front of each line,
/// `pelago: NAME: `; only a caller that names a pcore may write in the machine's name, `pelago: `.
/// Whole lines stay whole, eight at most; control characters but tabs are written as escapes, so
/// that no terminal obeys them. Drops what a domain and those that share its part of the log
/// (`DomainAlloc`) write faster than 16 KiB a second (64 KiB at once), and counts it in a later
/// line; a line of a domain that may make code costs 8 KiB at least.
1 fn log = Log [] (text: Text<512>, machine: OptionalHere<POWER>) -> ();

/// Writes raw bytes to the console port, on core 0. After `BadPointer` the bytes before the pages
/// that cannot be read may be written.
2 fn console_write = ConsoleWrite [] (console: Cap<Device, CONTROL>, bytes: Bytes<4096>) -> ()
    | BadArgument "not the console's ports, or not core 0: have core 0's console server write";

/// Ends the machine with a status of 0..=255.
3 fn power_off = PowerOff [] (pcore: Here<POWER>, status: ExitStatus) -> (never: Never);

/// Reads one of this core's counters, `layout::counter`.
4 fn counter_read = CounterRead [Ring] (index: Choice) -> (value: Value);

/// Copies trace records of this core, oldest first, and tells how many bytes were written and how
/// many records were lost before. After `BadPointer` the records that fit before that address are
/// written, and gone from the trace.
5 fn trace_read = TraceRead [] (pcore: Here<CONTROL>, buffer: Buffer) -> (bytes: Value, lost: Value);

/// Copies a capability inside the caller's share, with equal or fewer rights.
8 fn cap_copy = CapCopy [Ring] (source: Source<Any>, rights: RightsWanted) -> (copy: New<Any>);

/// Copies a capability for a context or a portal with another badge: a notification capability.
9 fn cap_mint = CapMint [] (source: Source<ContextOrPortal, CONTROL>, rights: RightsWanted, badge: Badge)
    -> (copy: New<Any>);

/// Empties a slot. Destroys the object with its last capability.
10 fn cap_drop = CapDrop [Ring] (capability: CapOf<Any>) -> ();

/// Tells the object's type, an `ObjectType` as a number, its id, and the capability's rights.
11 fn cap_stat = CapStat [Ring] (capability: CapOf<Any>) -> (object_type: Value, id: Value, rights: RightsHeld);

/// Revokes the capabilities that were derived from one by `CapCopy`, `CapMint`, `DomainGrant`,
/// `DomainAlloc` (SELF_RAM) or as a notification that is kept, and those derived from these; the
/// capability itself stays. Each call does a bounded part. A domain that nobody else can name
/// afterwards ends. What was made or mapped through those capabilities stays: see `RamRevoke`.
12 fn cap_revoke = CapRevoke [] (capability: CapOf<Any>) -> (more: More);

/// Makes a child account over the same memory. The child's use counts in each ancestor; a limit is
/// not a reservation. Contexts whose time an account pays for share turns of the core with those of
/// other accounts (decision 65).
16 fn ram_split = RamSplit [Ring] (ram: Cap<Ram, WRITE>, limit_pages: Value, turns: Turns) -> (account: New<Ram>)
    | BadArgument "more than 8 accounts one below the other: split one nearer to the root; the account whose turns it \
        shares is paid by one that does not pay for it: name one below an account that pays for both";

/// Tells an account's limit, what it uses, and the free pages of the root that it stands on.
17 fn ram_stat = RamStat [Ring] (ram: Cap<Ram>) -> (limit_pages: Value, used_pages: Value, free_pages: Value);

/// Takes contiguous free pages out of this core's root Ram for good, to give them to another core;
/// tells their physical address.
18 fn ram_carve = RamCarve [] (root: Cap<Ram, CONTROL>, pages: Value) -> (address: Value)
    | BadArgument "not a root account: name this core's root",
      NoMemory "no free run is that long: ask for fewer pages";

/// Adds pages carved on another core to this core's root Ram.
19 fn ram_add = RamAdd [] (root: Cap<Ram, CONTROL>, address: Physical, pages: Pages) -> ()
    | BadArgument "not a root account: name this core's root; outside memory, or there already: add each run that was \
        carved once",
      Busy "the root's table of regions is full: add fewer and longer runs";

/// Revokes all memory that an account and the accounts below it pay for. Each call does a bounded
/// part. Destroys every object paid there, wherever it is held, and every capability for the
/// account but the one named and those it was derived from. First objects that act: domains end
/// with `DeathCause::Revoked` and their parents are told; so does the domain of a context whose
/// object or time was paid there; devices are made quiet, semaphores and portals give `PeerDead`.
/// Then segments: no page is free before its translations are invalidated, and a program that
/// touches one then faults. A pool that is paid there is destroyed on all cores: each destroys what
/// represents it there, and the call gives 1 until the last has. Monitors of other cores first
/// revoke what those imported of this memory.
///
/// # Safety
/// Nothing in this program may use memory that the account pays for.
20 fn ram_revoke = RamRevoke [Unsafe] (ram: Held<Ram, CONTROL>) -> (more: More)
    | BadArgument "the caller's domain, context or time is paid there: ask somebody outside";

/// Gives an account turns of the core of its own, if it shares those of another (`RamSplit`). The
/// contexts that it pays for have them from now on, and so do accounts that are split from it
/// later; those split before keep the turns that they share.
21 fn ram_turns = RamTurns [] (ram: Cap<Ram, WRITE>, pcore: Here<CONTROL>) -> ()
    | BadArgument "the root has turns of its own already: name an account below it",
      NoMemory "its parent cannot pay a page: raise the parent's limit",
      Busy "it pays for more than 64 domains, contexts and the like: drop some, or split an account with turns of its \
        own";

/// Makes a segment of zeroed pages; tells its physical address if it is CONTIGUOUS, else 0. Without
/// EAGER the pages are demand-zero. EAGER and CONTIGUOUS may take several steps (decision 60):
/// pages are charged as they are made, those of a run all at once; nobody can name the segment
/// before it is complete. What a call that was given up has made is freed by the context's next
/// call of this kind, or its end. COMMON, with EAGER only: `DomainFork` gives a child a segment of
/// its own with the same pages, for both to write.
24 fn segment_alloc = SegmentAlloc [Ring] (ram: Cap<Ram, WRITE>, pages: SegmentPages, flags: Flags) then (done)
    -> (segment: New<Segment>, address: Value);

/// Copies a segment, by a mode of `layout::copy`. Copy-on-write shares pages until one side writes,
/// copy-on-reference until the copy is read or either is written. A contiguous source is copied at
/// once: its frames must stay. One of a pool can be copied plainly only, each page as it is when
/// its turn comes, whatever other cores write meanwhile; `ShareCopy` copies each 512 as of one
/// moment, and shares pages. Any copy may take several steps, as an eager `SegmentAlloc`: what this
/// core's programs write meanwhile is in the pages whose turn comes later.
25 fn segment_copy = SegmentCopy [] (ram: Cap<Ram, WRITE>, segment: Cap<Segment, READ>, mode: Flags) then (done)
    -> (copy: New<Segment>)
    | BadArgument "an imported segment that is no RAM: read it where it is mapped; a mode other than PLAIN for an \
        imported, common or pool's one: copy it by PLAIN";

/// Tells a segment's pages, those present, and its physical address if it is contiguous and the
/// capability has the DMA right, else 0.
26 fn segment_stat = SegmentStat [Ring] (segment: Named<Segment>) -> (pages: Value, present: Value, address: Value);

/// Grows or shrinks a segment to `pages`; or, if that is 0, frees pages inside. Shrinking frees
/// pages and unmaps them, from the end on, which may take several steps (decision 60); one that is
/// given up leaves it longer. With `pages` 0 the length stays, and mappings too; `freed` pages from
/// `first` on are absent, so that the next touch finds zeroes. That may take several steps, too,
/// from the first page up; one that is given up, or refused as others made the segment shorter,
/// leaves the rest as it was.
///
/// # Safety
/// Nothing in this program may use pages that go away, or rely on what those freed hold.
27 fn segment_set_pages = SegmentSetPages [Unsafe]
    (segment: Cap<Segment, WRITE>, pages: PagesOrNone, first: FirstPage, freed: Pages) -> ()
    | BadArgument "contiguous, imported, common, or of a pool: make a segment of the length that is needed; pages past \
        the end: free those inside",
      NoMemory "no page for the longer table: raise the account's limit";

/// Makes a segment over memory that belongs to another core or to a device; it owns no page.
/// `flags`: `layout::segment::UNCACHED`.
28 fn segment_import = SegmentImport []
    (pcore: Here<CONTROL>, ram: Cap<Ram, WRITE>, address: Physical, pages: SegmentPages, flags: Flags) -> (segment: New<Segment>);

/// Maps part of a segment in a range. The segment's rights must cover the protection
/// (`layout::protection`).
32 fn range_map = RangeMap [] (range: Cap<AddressRange, WRITE>, address: Address, segment: Named<Segment>,
    first_page: FirstPage, pages: Pages, protection: Flags) -> ()
    | Busy "something is mapped there: unmap it, or take another address; the segment is or has a copy by `ShareCopy` \
        and this is not the one range of its pool that may map it: map it in that one",
      BadArgument "outside the window or the segment: map less; W and X together: leave one out, or make the range \
        with WRITE_EXECUTE; a segment of another pool: map one of the range's pool",
      WrongType "a shared range maps segments of its pool only: map a private one in a range of this core's own",
      NoRights "the segment's rights do not cover the protection: ask for a copy with more",
      NoMemory "no page for tables: raise the account's limit",
      PeerDead "the range's domain ended, or the range or the segment was revoked: drop the capability";

/// Unmaps pages and tells how many were mapped; holes are no error. Splits mappings as needed. May
/// take several steps (decision 60), from the first address up; after each step nobody can access
/// the pages below where it is. A call that is given up, or refused in a later step because others
/// mapped there or revoked the range, leaves the rest mapped. The word for its progress counts what
/// the steps before have unmapped.
///
/// # Safety
/// If `range` is the caller's own, nothing may use that memory any more.
33 fn range_unmap = RangeUnmap [Unsafe] (range: Cap<AddressRange, WRITE>, address: Address, pages: Pages)
    then (unmapped) -> (pages: Value)
    | BadArgument "part of a nested range: take it out whole, or name the nested range; more unmapped before than \
        there are addresses: begin with 0",
      NoMemory "a mapping must be split, and nothing has changed: raise the account's limit",
      PeerDead "the range's domain ended, or it was revoked: drop the capability";

/// Changes the protection of pages. Every page must be mapped by a segment whose capability had
/// these rights when it was mapped. May take several steps (decision 60): first it checks all
/// pages, and a refusal has changed nothing; then it changes them from the first address up, and
/// those above where it is may still be used as before. A call that is given up leaves some
/// changed.
///
/// # Safety
/// If `range` is the caller's own, nothing may use that memory beyond the new protection.
34 fn range_protect = RangeProtect [Unsafe]
    (range: Cap<AddressRange, WRITE>, address: Address, pages: Pages, protection: Flags) then (checked) -> ()
    | BadArgument "a page is not mapped, or others unmapped it before its turn came: map it first",
      NoRights "a segment was mapped with fewer rights: map it by a capability with more",
      NoMemory "a mapping must be split: raise the account's limit",
      PeerDead "the range's domain ended, or it was revoked: drop the capability";

/// Tells the mapping at or after an address.
35 fn range_get = RangeGet [] (range: Cap<AddressRange, READ>, address: Value) -> (entry: Entry)
    | NotFound "no mapping follows: stop there",
      PeerDead "the range's domain ended, or it was revoked: drop the capability";

/// Makes an empty range that can be nested, and tells its pages: as many as one entry of the next
/// larger kind of range covers. Addresses in it begin at 0. `flags`:
/// `layout::domain::WRITE_EXECUTE`.
36 fn range_alloc = RangeAlloc [] (ram: Cap<Ram, WRITE>, pages: RangePages, flags: WriteExecute)
    -> (range: New<AddressRange>, pages: Value);

/// Nests a range, whole, in another one. All that is or will be mapped in it can be accessed there,
/// with at most that protection, which the rights of the second capability must cover. Table pages
/// are shared: a fault served through one of the places serves all. The same range can be nested in
/// many places. `RangeUnmap` takes it out again; to unmap or protect a part of it, name the nested
/// range itself.
37 fn range_nest = RangeNest []
    (range: Cap<AddressRange, WRITE>, address: NestAddress, nested: Named<AddressRange>, protection: Flags) -> ()
    | BadArgument "not larger than the nested range (so there are no cycles), shared by cores, or its end outside the \
        window: name a larger one of this core's own; code there may be writable and here not: make both with \
        WRITE_EXECUTE, or neither",
      NoRights "the capability does not cover the protection: ask for a copy with more",
      Busy "something is mapped there: unmap it, or take another address",
      NoMemory "no page for tables: raise the account's limit",
      PeerDead "either was revoked, or its domain ended: drop the capability";

/// Maps pages now that would be mapped at their first touch, so that touching them does not fault,
/// and tells how many: at least 1, at most 128; go on after them. Makes absent pages; shared ones
/// stay shared, except those copied by reference.
38 fn range_fill = RangeFill [] (range: Cap<AddressRange, WRITE>, address: Address, pages: Pages) -> (pages: Value)
    | BadArgument "nothing that can be read is mapped at the first: map it, or begin after it",
      NoMemory "there is no page for the first: raise the account's limit",
      PeerDead "the range's domain ended, or it was revoked: drop the capability";

/// Retypes a page as a table: makes an empty range as by `RangeAlloc`, whose uppermost table is the
/// page of a contiguous segment, which is destroyed; tells its pages. The segment's Ram pays.
39 fn range_retype = RangeRetype [] (segment: Held<Segment, CONTROL>, pages: RangePages, flags: WriteExecute)
    -> (range: New<AddressRange>, pages: Value)
    | Busy "the page is mapped, or something else names the segment: unmap it, drop the copies",
      BadArgument "not contiguous, or not one page: make one CONTIGUOUS page";

/// Makes a protection domain, with a root Share and a root AddressRange; tells its object id. `ram`
/// pays for all its tables: to limit it, `RamSplit` before. The log calls it by the name, ASCII
/// without spaces and colons. It shares the part of the log of `log_of`, so that all forks get what
/// one program gets, or has one of its own. Without a pcore it has its maker's name and shares its
/// maker's part, whatever name and `log_of` say, so that nobody can write in the name of another or
/// gain by making domains. A domain ends when the last capability for it outside its own share is
/// dropped: keep one to keep it alive. `flags`: `layout::domain::WRITE_EXECUTE`.
40 fn domain_alloc = DomainAlloc [] (ram: Source<Ram, WRITE>, flags: Flags, pcore: OptionalHere<CONTROL>,
    name: Text<32>, log_of: OptionalCap<Domain, READ>) -> (domain: New<Domain>, id: Value)
    | PeerDead "the domain of `log_of` has ended: name another, or none";

/// Copies a capability into another domain's root share.
41 fn domain_grant = DomainGrant [] (domain: Cap<Domain, WRITE>, source: Source<Any, GRANT>, rights: RightsWanted)
    -> (handle: There)
    | PeerDead "the domain has ended: make another";

/// Makes a capability for the domain's root address range.
42 fn domain_range = DomainRange [] (domain: Cap<Domain, WRITE>) -> (range: New<AddressRange>);

/// Ends a domain and frees all it owns. This call returns, and the death notification is sent, when
/// all is freed; that takes several steps (decision 60), in which the domain is dead for all
/// callers. Does not return if the domain is the caller's.
43 fn domain_kill = DomainKill [] (domain: Cap<Domain, CONTROL>, status: Value) -> ();

/// Ends the caller's own domain, as `DomainKill` does another.
44 fn domain_exit = DomainExit [] (status: Value) -> (never: Never);

/// Tells the state of a domain, or how it ended.
45 fn domain_state = DomainState [] (domain: Cap<Domain, READ>, state: Out<$crate::DomainState>) -> ();

/// Sets the notification that is sent when the domain has died and all it owned is freed; sends it
/// at once if that is so. Replaces an earlier one.
46 fn domain_on_death = DomainOnDeath [] (domain: Cap<Domain, CONTROL>, target: Target) -> ();

/// Fills a child as a copy of the caller (Corey cfork, section 5.1), paid by the child's own Ram.
/// Each segment whose capability has the INHERIT right is copied copy-on-write into the *same slot*
/// of the child's share, and each of its mappings is made at the same address, where it allows no
/// more than that capability. Imported segments and those of a pool are neither in a slot of the
/// child nor mapped in it. A segment in two slots is one in the child's, too, and the second allows
/// no more than the first. May take several steps (decision 60): what the caller's other contexts
/// write meanwhile is in the pages whose turn comes later, so a caller that needs a copy of one
/// instant lets none of them run. After a refusal the child keeps what it got until then (slots in
/// order, then mappings) and is to be killed; the caller has all it had.
47 fn domain_fork = DomainFork [] (child: Cap<Domain, WRITE>) then (slot, address) -> ()
    | BadArgument "the child is the caller's own domain: make a new one; a word of progress that the kernel did not \
        write: begin with 0",
      Busy "a slot or an address is taken there: take a new child",
      NoMemory "the child's account is too small: raise its limit",
      PeerDead "the child has ended: make another";

/// Tells what one payer paid of a domain's time, in nanoseconds, up to when the domain ran last or
/// `DomainState` was asked. A payer is a scheduling context, named by its object id; `client` is
/// the id of the domain whose context that belonged to, which is another than `domain` if it called
/// a portal, and 0 if that context had ended. Rows are numbered from 0. There are 16: a payer
/// without one gets that of who paid least. What is in no row is the rest of
/// `DomainState::cpu_ns`. May be asked of a domain that has ended.
48 fn ledger_read = LedgerRead [] (domain: Cap<Domain, READ>, number: Value)
    -> (payer: Value, client: Value, paid_ns: Value)
    | NotFound "there is no such row, nor one behind it: stop there";

/// Makes a context. Its control page (one page, `ControlPage`) is mapped read-write at that
/// address. It may give priorities up to `priority_max`. `flags`: `layout::context`. The caller's
/// own domain needs no right, another's WRITE.
56 fn context_alloc = ContextAlloc []
    (ram: Cap<Ram, WRITE>, domain: Held<Domain>, control_page: Address, flags: Flags, priority_max: Priority)
    -> (context: New<ExecutionContext>)
    | NoRights "another's domain without WRITE: ask for a copy with it",
      Busy "something is mapped there: take another address",
      PeerDead "the domain has ended: make another";

/// Gives a context time of its own. A monitor may give priority 7.
57 fn context_schedule = ContextSchedule []
    (ram: Cap<Ram, WRITE>, context: Cap<ExecutionContext, CONTROL>, priority: Priority, slice_us: Slice)
    -> (schedule: New<SchedulingContext>)
    | Busy "it has time of its own: change that by `ScheduleSet`",
      PeerDead "it has ended: make another";

/// Starts a context, with two words in its first argument registers (RDI, RSI).
///
/// # Safety
/// If the context is of the caller's own domain, instruction and stack pointer must be those of
/// code meant to run beside the caller's.
58 fn context_start = ContextStart [Unsafe]
    (context: Cap<ExecutionContext, CONTROL>, instruction: Instruction, stack: UserAddress, arguments: EntryArguments) -> ()
    | Busy "it was started before: make another",
      PeerDead "it has ended: make another";

/// Turns the caller's Linux calls and program faults into upcalls to the proxy, see `control`. May
/// be called again. With TICKS (`layout::upcall`) the end of each slice arrives as an upcall, for a
/// program's threads.
///
/// # Safety
/// The entries must follow `abi::control`; the stack must be theirs alone.
59 fn context_proxy = ContextProxy [Unsafe]
    (call_entry: Address, upcall_entry: Address, stack_top: Address, flags: Flags) -> ()
    | NoRights "the context was made without LINUX: make one with it";

/// Sets the caller's base of FS (0) or GS (1): for machines without FSGSBASE.
///
/// # Safety
/// No code of the caller may use that segment with another base.
60 fn context_base = ContextBase [Unsafe] (which: Choice, address: UserAddress) -> ();

/// Loads all registers from the control page's `program` and goes on there (return from an
/// upcall). Clears `in_proxy` itself: done by the proxy before the call, a notification in between
/// would overwrite `program`.
///
/// # Safety
/// Nothing returns to what the abandoned stack held.
61 fn context_resume = ContextResume [Unsafe] () -> (never: Never)
    | BadArgument "the program's instruction pointer is outside the window: write one inside to the control page";

/// Has the watchdog report a context that has notifications pending but has not called `Wait` for
/// this long, because it loops, or waits for a semaphore or a caller. Reports a stall once. 0 ends
/// the watch. Contexts that share turns (`RamSplit`) share 1,000 probes a second, so a stall among
/// more than 12 is reported later.
62 fn context_watch = ContextWatch []
    (context: Cap<ExecutionContext, CONTROL>, limit_ns: WatchLimit, target: OptionalTarget) -> ()
    | PeerDead "it has ended: make another";

/// Gives the rest of the slice to others of the same priority.
63 fn yield_slice = Yield [] () -> ();

/// Ends a context: it never runs again, and contexts that wait for it get `PeerDead`. Does not
/// return if it is the caller's own. Its domain and the mapping of its control page stay. Portals
/// into it have no callee afterwards; of very many some lose it a few steps before (decision 60).
64 fn context_end = ContextEnd [] (context: Cap<ExecutionContext, CONTROL>) -> ()
    | PeerDead "it has ended before: drop the capability";

/// Sets the entry of the caller's upcalls, for a user-level scheduler of threads; 0: none. A
/// fault that the kernel cannot resolve, badge bits of `upcall_mask`, and with TICKS
/// (`layout::upcall`) the end of each slice arrive there as `control` says.
///
/// # Safety
/// The entry must follow `abi::control`; the stack must be its alone.
65 fn context_upcall = ContextUpcall [Unsafe] (upcall_entry: Address, stack_top: Address, flags: Flags) -> ()
    | NoRights "the context was made with LINUX: use `ContextProxy`";

/// Tells how long a scheduling context was used since it was made, by any context, its slice and
/// its priority.
66 fn schedule_stat = ScheduleStat [] (schedule: Cap<SchedulingContext, READ>)
    -> (used_ns: Value, slice_us: Value, priority: Value);

/// Changes the length of slices; a current one that is longer is cut, and none begins anew. With a
/// period, at least a slice long, a slice is the budget of each period: once it is spent, the time
/// waits until the period ends, and a callee that it is donated to runs on other time only. The
/// first period begins now, each later one when the time first runs on a new budget, so in n
/// successive periods it runs for n + 1 budgets at most. Period 0: no budget.
67 fn schedule_set = ScheduleSet [] (schedule: Cap<SchedulingContext, CONTROL>, slice_us: Slice, period_us: Period) -> ()
    | Busy "a member of a gang has no budget: let it leave by `ScheduleGang`";

/// Slows this core down: programs run in so many of each 8 milliseconds (1..=8; 8: always), the
/// first of them. The kernel itself, its interrupts and wake-ups are not held up.
68 fn pcore_throttle = PcoreThrottle [] (pcore: Here<CONTROL>, eighths: Eighths) -> ();

/// Makes time a member of a gang: it runs in `[n * period + phase, + slice)` of the clock only,
/// whole n. All cores have one clock (nanoseconds since boot), so members with the same three
/// numbers run at the same times on their cores, without a message (decision 39). In its window it
/// comes before other time of its priority and after that of higher ones; while its context waits
/// others run. Outside its window it does not run, but others may donate time to its context. All
/// 0: it leaves the gang. The pcore is needed because other time of the same priority yields to the
/// member. A member keeps its windows until it leaves, gets others, or its context ends.
69 fn schedule_gang = ScheduleGang [] (pcore: Here<CONTROL>, schedule: Cap<SchedulingContext, CONTROL>,
    period_us: Period, slice_us: Period, phase_us: Period) -> ()
    | Busy "its windows would meet those of another member on this core, of whatever priority: take another phase, or \
        a period that divides theirs or that theirs divides; it has a budget: take that away by `ScheduleSet`; the \
        core has 64 members: let one leave",
      PeerDead "its context ended: drop the capability";

/// Sets the capability's badge bits at its execution context and unblocks it if it waits. Of a
/// portal its own badge counts; one without a callee has no effect. Never blocks, never fails for a
/// full queue.
72 fn notify = Notify [Ring] (target: CapOf<Notified, NOTIFY>) -> ();

/// Takes all pending badge bits, or waits until one is set; 0: the deadline passed. Unblocks
/// mailbox callers that donate to this context.
73 fn wait = Wait [] (deadline_ns: Deadline) -> (bits: Value);

/// Allocates a number (1..1024) by which other cores may notify a context of this core, or add to a
/// semaphore. Of a portal its own badge counts, a semaphore has none. The number is freed with the
/// context, portal or semaphore.
74 fn wake_slot_alloc = WakeSlotAlloc [] (pcore: Here<CONTROL>, target: CapOf<Woken>, badge: Badge) -> (slot: Value)
    | Busy "all are taken: free one",
      PeerDead "the context has ended: make another";

/// Makes a capability to notify a context of another core, or to add to a semaphore there.
75 fn wake_slot_import = WakeSlotImport [] (pcore: Here<CONTROL>, ram: Cap<Ram, WRITE>, core: Core, slot: WakeSlot)
    -> (remote: New<RemoteContext>);

/// Frees one wake slot of a local context.
76 fn wake_slot_free = WakeSlotFree [] (pcore: Here<CONTROL>, slot: Choice) -> ()
    | NotFound "the slot is free: free each once";

/// As `Notify`, but leaves a context of this core alone that waits in `Wait`: for a watchdog that
/// makes sure of what is not at rest, and costs what is nothing.
77 fn notify_busy = NotifyBusy [] (target: CapOf<Notified, NOTIFY>) -> ();

/// Makes an entrance into a context of this core, or into none yet (`Handle::NONE`). `kind`:
/// `layout::portal`.
80 fn portal_alloc = PortalAlloc []
    (ram: Cap<Ram, WRITE>, context: OptionalCap<ExecutionContext, CONTROL>, badge: Badge, kind: Flags)
    -> (portal: New<Portal>);

/// Calls through a portal and donates the caller's time to the callee until it replies (NOVA
/// donation and helping). RENDEZVOUS portal: passes four words and waits for `PortalReplyWait` of
/// the callee, which passes three. MAILBOX portal: sets the badge bits and donates time until the
/// callee reaches Wait, none to one that was not started; the caller also goes on when it is itself
/// notified, if the callee has time of its own. After `Timeout` and `PeerDead` what the callee did
/// until then stays. A queued caller gets `Busy` later if the callee's own calls need the room.
81 fn portal_call = PortalCall [Direct] (portal: Cap<Portal, CALL>, words: Words<4>, deadline_ns: Deadline)
    -> (words: Words<3>)
    | Busy "the callee waits for the caller, or more than 16 calls would wait for each other: call later",
      Timeout "no reply by then: call again, or with a later deadline",
      PeerDead "the callee ended, or the portal has none: bind again";

/// Replies to the current rendezvous caller if there is one and waits for the next. After `Timeout`
/// the reply is given all the same, and the same call made again replies to nobody.
82 fn portal_reply_wait = PortalReplyWait [Direct] (words: Words<3>, deadline_ns: Deadline) -> (call: Rendezvous)
    | Timeout "nobody called until the deadline: wait again";

/// Gives a portal another callee on this core, or none (`Handle::NONE`): so holders of a
/// component's portal keep it when the component is restarted. Calls under way stay with the old
/// callee.
83 fn portal_set = PortalSet [] (portal: Cap<Portal, CONTROL>, context: OptionalCap<ExecutionContext, CONTROL>) -> ();

/// Makes a semaphore with a count up to 2^31.
88 fn semaphore_alloc = SemaphoreAlloc [] (ram: Cap<Ram, WRITE>, count: SemaphoreCount) -> (semaphore: New<Semaphore>);

/// Adds to a semaphore's count, at least 1. A semaphore needs WRITE, a RemoteContext of its wake
/// slot NOTIFY. Another core gets the count soon, by its mailbox, and loses what overflows there.
89 fn semaphore_up = SemaphoreUp [] (semaphore: CapOf<NearOrFarSemaphore>, count: Value) -> ()
    | BadArgument "0, or the count would pass 2^31: add less, and at least 1",
      NoRights "a semaphore needs WRITE, a RemoteContext NOTIFY: ask for a copy with it";

/// Takes one from a semaphore's count, or waits for it; first come, first served.
90 fn semaphore_down = SemaphoreDown [] (semaphore: Cap<Semaphore, READ>, deadline_ns: Deadline) -> ()
    | Timeout "nobody added to it until the deadline: wait again",
      PeerDead "its memory was revoked: make another";

/// Runs a claimed core that is halted, with the one domain that the launch describes and nothing
/// else; holds the segments until the core halts.
96 fn pcore_run = PcoreRun [] (pcore: Held<Pcore, CONTROL>, launch: In<$crate::pcore::Launch>) -> ()
    | Busy "it runs: halt it, and wait until it has",
      BadHandle "a segment of the launch is an empty slot: name one that was not dropped",
      WrongType "a segment of the launch is none: name segments only",
      NoRights "a segment's rights do not cover its protection or lack DMA, or the pcore's lack those of the launch: \
        ask for copies with more",
      BadArgument "a segment that is not contiguous memory: make it CONTIGUOUS; places that overlap: move one; a pcore \
        that was not claimed: claim it by `PcoreAlloc`",
      TooDeep "a segment of the launch is a copy of a copy and so on, 16 times: name one nearer to the first";

/// Tells a core's APIC id, NUMA node, and whether it runs; any domain may ask. On core 0 a claimed
/// core runs from `PcoreRun` on until core 0 has heard that it halted. The number of cores is found
/// by asking, or by `PcoreCurrent`.
97 fn pcore_stat = PcoreStat [Ring] (core: Core) -> (apic_id: Value, node: Value, runs: Switch);

/// Tells this core, the number of cores, and how many run.
98 fn pcore_current = PcoreCurrent [Ring] () -> (core: Value, cores: Value, running: Value);

/// Claims a core of the free pool. When the last capability for the claim is dropped, the core is
/// halted and free again.
99 fn pcore_alloc = PcoreAlloc [] (pcore: Here<CONTROL>, ram: Cap<Ram, WRITE>, core: Core) -> (claimed: New<Pcore>)
    | Busy "it is claimed, or was and still halts: take another, or try later",
      BadArgument "core 0, which cannot be claimed: take another",
      OtherCore "the pool is core 0's: ask its monitor";

/// Ends the domain that runs on a core and halts it, with its memory kept for the next run. A
/// core's own pcore halts it at once, a claim soon, see `PcoreWatch`. A halted core stays halted.
100 fn pcore_halt = PcoreHalt [] (pcore: Cap<Pcore, CONTROL>) -> ()
    | BadArgument "core 0's own: end the machine by `PowerOff`; a pcore that was not claimed: claim it by `PcoreAlloc`";

/// Sets the notification that is sent when a claimed core runs, and when it has halted, by order or
/// because its first domain ended. Replaces an earlier one.
101 fn pcore_watch = PcoreWatch [] (pcore: Cap<Pcore, CONTROL>, target: Target) -> ()
    | BadArgument "a pcore that was not claimed: claim it by `PcoreAlloc`";

/// Makes a claimed core that is halted a kernel core: from its next run on it polls this too and
/// runs no program; tells the index in its device list. `kind`: `pcore::polled`. The segment also
/// needs DMA. Offset, core and wake slot are for `WORD` only.
102 fn pcore_add_device = PcoreAddDevice [] (pcore: Cap<Pcore, CONTROL>, kind: Choice, segment: Source<Segment, READ_WRITE>,
    offset: Value, core: Value, slot: Value) -> (index: Value)
    | Busy "it runs: halt it, and wait until it has; its list is full: take another core",
      BadArgument "not claimed: claim it by `PcoreAlloc`; a segment that is not contiguous memory: make it CONTIGUOUS; \
        an odd offset or one past the end, or no such core or wake slot: name what is there",
      NoRights "the segment lacks DMA: ask for a copy with it";

/// Tells what a kernel core found at one of its devices: its kind, polls, and requests or changes
/// found.
103 fn pcore_device_stat = PcoreDeviceStat [Ring] (index: Value) -> (kind: Value, polls: Value, found: Value)
    | NotFound "past the last: stop there; the core is no kernel core: ask on one";

/// Tells about the device of that index.
104 fn device_list = DeviceList [] (index: Value, record: Out<$crate::start::DeviceRecord>) -> ()
    | NotFound "past the last: stop there";

/// Claims a device for the caller alone, by `DeviceRecord::hwid`.
105 fn device_alloc = DeviceAlloc [] (pcore: Here<CONTROL>, ram: Cap<Ram, WRITE>, hwid: Value) -> (device: New<Device>)
    | Busy "claimed, on whatever core: ask its holder, or try later",
      NotFound "no device has that id: look it up by `DeviceList`";

/// Makes a segment over a register window (0..6), writable only with the device's WRITE right, and
/// tells the window's offset in its first page.
106 fn device_window = DeviceWindow [] (device: Held<Device, READ>, ram: Cap<Ram, WRITE>, window: Value)
    -> (segment: New<Segment>, offset: Value)
    | NotFound "the device has no such window of memory: look it up by `DeviceList`",
      BadArgument "a window larger than a segment: use another of the device";

/// Reads configuration space, 1, 2 or 4 bytes.
107 fn device_conf_read = DeviceConfRead [] (device: Cap<Device, READ>, offset: Choice, width: Choice) -> (value: Value)
    | NotFound "the device has none: use its windows or ports";

/// Writes configuration space, 1, 2 or 4 bytes.
108 fn device_conf_write = DeviceConfWrite []
    (device: Cap<Device, WRITE>, offset: Choice, width: Choice, value: Value) -> ()
    | NotFound "the device has none: use its windows or ports",
      NoRights "base addresses, interrupt and bridge registers and the extended space, from 256 on, are the kernel's: \
        use `DeviceInterrupt` and `DeviceMaster`";

/// Sends an interrupt of the device to a context of this core as a notification.
109 fn device_interrupt = DeviceInterrupt [] (device: Cap<Device, CONTROL>, entry: Value, target: Target) -> ()
    | NotFound "the device has no such interrupt: look up how many it has by `DeviceList`",
      Busy "the core is out of vectors, or the device's are all aimed: aim one of those again, or drop a device";

/// Enables the device as bus master (1), to read and write memory, or stops it (0) and masks its
/// interrupts. Safe in itself: addresses reach a device through its registers only, and
/// writing those is unsafe, or needs a DMA right, already.
111 fn device_master = DeviceMaster [] (device: Cap<Device, CONTROL>, on: Switch) -> ()
    | NotFound "a device of ports: it never reads memory by itself, so leave the call out";

/// Reads a port of a device that has ports, 1, 2 or 4 bytes.
112 fn device_port_read = DevicePortRead [] (device: Cap<Device, READ>, offset: Choice, width: Choice) -> (value: Value)
    | NotFound "the device has no ports: use its windows";

/// Writes a port of a device that has ports, 1, 2 or 4 bytes.
113 fn device_port_write = DevicePortWrite []
    (device: Cap<Device, WRITE>, offset: Choice, width: Choice, value: Value) -> ()
    | NotFound "the device has no ports: use its windows";

/// Tells how far a core is from the memory of another's node: the distance as the firmware gives it
/// (10 = near), and their nodes.
114 fn locality_get = LocalityGet [Ring] (from: Core, to: Core) -> (distance: Value, from_node: Value, to_node: Value);

/// Tells how many objects of a type are alive on this core.
115 fn object_count = ObjectCount [Ring] (object_type: TypeNumber) -> (count: Value);

/// Tells how a core is used: nanoseconds that programs had it in its current run, the kernel's work
/// for them included; what it runs, `pcore::runs`; object id of the domain that claimed it, 0:
/// nobody.
116 fn pcore_use = PcoreUse [] (pcore: Here<READ>, core: Core) -> (used_ns: Value, runs: Value, claimant: Value)
    | OtherCore "claims are core 0's: ask its monitor";

/// Makes a share that several cores can use (decision 38); tells its object id. Without `parent` it
/// takes so many pages (8 up) of the Ram for a new pool; its first share comes into the caller's
/// root share. With `parent` the new one lies in the pool of `parent` and is added to it; Ram and
/// pages are ignored. Objects in it are found without a lock; changes take its lock, a kind of
/// `layout::lock`. A new pool may take several steps (decision 60), which the upper half of that
/// word counts.
208 fn share_alloc = ShareAlloc [] (parent: OptionalCap<Share, WRITE>, ram: OptionalCap<Ram, WRITE>, pages: Value, lock: Flags,
    name: Name) -> (share: NewShared<Share>, id: SharedId)
    | BadArgument "too few pages, or too many: take at least 8, and at most `layout::SEGMENT_PAGES_MAX`",
      NoMemory "the Ram, or the pool, has no pages left: raise the account's limit, or make a larger pool",
      Busy "the core has 64 pools: drop one",
      PeerDead "the pool's Ram was revoked: drop the capability";

/// Adds a shared object to a share (Corey share_addobj), with one reference more; without `share`
/// to the caller's root share, as an object of this core that the share's Ram pays for. The object
/// needs GRANT.
209 fn share_add = ShareAdd [] (share: OptionalCap<Share, WRITE>, object: Named<Any>, rights: RightsWanted)
    -> (handle: NewShared<Any>)
    | WrongType "the object is private: use `CapCopy` or `DomainGrant`",
      BadArgument "of another pool: name a share of its pool",
      Busy "known there already: use its id",
      NoRights "the object lacks GRANT: ask for a copy with it";

/// Removes an object from a share (Corey share_delobj), with one reference less; the last destroys
/// it. `CapDrop` removes a name in the root share (Corey self_drop).
210 fn share_remove = ShareRemove [] (share: Cap<Share, WRITE>, id: SharedId) -> ()
    | NotFound "it is not known there: remove each once",
      PeerDead "the pool's Ram was revoked: drop the capability";

/// Tells how many objects are known in a share, how often its lock was taken, and how often
/// somebody waited for it.
211 fn share_stat = ShareStat [] (share: Cap<Share, READ>) -> (stat: Words<3>)
    | PeerDead "the pool's Ram was revoked: drop the capability";

/// Tells the id by which another core finds the pool of a share: for monitors to tell each other.
212 fn share_pool = SharePool [] (pcore: Here<CONTROL>, share: Cap<Share, GRANT>) -> (pool: SharedId)
    | PeerDead "the pool's Ram was revoked: drop the capability";

/// Makes a name for the first share of another core's pool.
213 fn share_import = ShareImport [] (pcore: Here<CONTROL>, ram: Cap<Ram, WRITE>, pool: SharedId) -> (share: New<Share>)
    | NotFound "there is no such pool (any more): ask its core's monitor again",
      PeerDead "its Ram was revoked: ask for another pool",
      Busy "the core has 64 pools: drop one";

/// Makes a segment in a share's pool and adds it to the share; tells its object id. Its pages are
/// zeroed and the pool's. With `flags` 0 they are demand-zero, on any core: a domain that touches
/// one when the pool is full ends with `DeathCause::NoMemory`. With `layout::segment::CONTIGUOUS`
/// they are allocated now, in one run. It may take several steps; what a call that was given up has
/// made is freed by the context's next call that makes a segment, or its end.
214 fn share_segment = ShareSegment [] (share: Cap<Share, WRITE>, pages: SegmentPages, name: Name, flags: Contiguous) then (done)
    -> (segment: NewShared<Segment>, id: SharedId)
    | NoMemory "the pool has no run of free pages that long, or none for a word per page: ask for fewer pages, or make \
        a larger pool";

/// Tells the name that a shared object was given when it was made (Corey obj_get_name), and its
/// references.
215 fn object_name = ObjectName [] (object: Named<Any>) -> (name: Name, references: Value)
    | WrongType "private objects have no names: name a shared one";

/// Makes an address range that several cores can map, with the very same table pages; the pool pays
/// for its tables and mappings; tells its object id and its pages. Add it to the root share
/// (`ShareAdd`) to map in it; `RangeNest` maps it. Only segments of its pool can be mapped in it,
/// no ranges. Map, unmap, protect and faults take its lock, a kind of `layout::lock`. `RangeUnmap`
/// and `RangeProtect` return when no core can access any more what was unmapped or protected.
/// `flags`: `layout::domain::WRITE_EXECUTE`.
216 fn share_range = ShareRange [] (share: Cap<Share, WRITE>, pages: RangePages, lock: Flags, name: Name, flags: WriteExecute)
    -> (range: NewShared<AddressRange>, id: SharedId, pages: Value);

/// Tells three counters of a shared range, `layout::range_stat`.
217 fn range_stat = RangeStat [] (range: Cap<AddressRange, READ>, what: Choice) -> (stat: Words<3>)
    | WrongType "it is a core's own: name a shared one",
      PeerDead "the range's domain ended, or it was revoked: drop the capability";

/// Makes a segment that shares all pages with another one of its pool until either is written;
/// tells its object id. It may take several steps, of 512 pages each: those of a step are as the
/// other held them at one moment, whatever is written meanwhile. Nobody can name the copy before it
/// is complete; what a call that was given up has made is freed by the context's next call that
/// makes a segment, or its end. The first writer of a page gets a new one from the pool, and goes
/// on when no core can access the old one in its place any more. From the first step on one range
/// of the pool at most maps each of both segments. The segment needs READ.
218 fn share_copy = ShareCopy [] (share: Cap<Share, WRITE>, segment: Named<Segment>, name: Name) then (done)
    -> (copy: NewShared<Segment>, id: SharedId)
    | Busy "a core's own range maps it, or several do: unmap it in all but one of its pool",
      WrongType "no segment, or a private one: name a shared segment, or use `SegmentCopy`",
      BadArgument "of another pool: name a share of its pool; made CONTIGUOUS: use `SegmentCopy`",
      NoRights "the segment lacks READ: ask for a copy with it";

    } };
}
