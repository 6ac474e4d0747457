//! execve: everything of the old program goes but its descriptors, then the new one is loaded and
//! entered.

use abi::{Handle, ProgramRegisters};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use contracts::descriptions::{DescriptionId, Kind, STANDARD, TERMINAL};
use contracts::process::{Birth, Ended};
use personality::descriptors::{Description, server};
use personality::flags::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_RDWR, O_WRONLY};
use personality::image::Image;
use personality::limits::resource;
use personality::memory::{PAGE, STACK_TOP, STATE_BASE, protection, stack_bytes};
use personality::path::{absolute, base_name, interpreter};
use personality::signals::AlternateStack;
use personality::signals::number::{SIGCHLD, SIGKILL};
use personality::stack::{self, auxiliary};
use personality::state::{STATE_PAGES, Text};
use personality::{Errno, memory};
use system::file_name;

use super::entry::{self, machine};
use super::errors::{Failure, Outcome};
use super::fd::close_description;
use super::input_output::description;
use super::load::{Opened, place_interpreter};
use super::places::at_place;
use super::proxy::{listen, proxy};
use super::syscall::begin_program;
use super::user::{self, with_block, with_state, with_thread};
use super::wait::answer;
use super::{mapping, process, shared_files, threads, timers, vfork};

/// Scripts whose interpreter is a script: as deep as Linux goes.
const SCRIPTS_MAX: usize = 4;
/// Clock ticks per second, as AT_CLKTCK and times() have it.
pub const TICKS_PER_S: u64 = 100;
const FRESH_FLAGS: u64 = 0x202;
/// S_IFCHR.
const CHARACTER_DEVICE: u32 = 0o020000;

struct Program {
    path: String,
    /// What it is opened by, if that is not its path.
    opened: Option<Named>,
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
}

/// A program that a descriptor names.
#[derive(Clone, Copy)]
struct Named {
    id: DescriptionId,
    descriptor: u64,
    closes: bool,
}

/// Makes the process state and starts the program that `etc/run` names.
pub async fn first(run: Option<&'static [u8]>) {
    let decoded = run.map(system::decode::<system::Run>);
    let Some(Ok(run)) = decoded else {
        runtime::log!("etc/run is missing or of another version: build the archive again");
        process::end(Ended::Exited(127));
    };
    let birth = match proxy().process.hello().await {
        Ok(birth) => birth,
        Err(error) => {
            runtime::log!("the process server does not know us: {error:?}");
            process::end(Ended::Exited(126));
        }
    };
    if let Err(errno) = make_state(&birth) {
        runtime::log!("no memory for the process state: {errno:?}");
        process::end(Ended::Exited(126));
    }
    listen();
    let status = match start_first(run).await {
        Ok(()) => enter(),
        Err((path, Failure::Errno(Errno::ENOENT))) => {
            runtime::log!("{path}: not found in the guest's root file system");
            127
        }
        Err((path, failure)) => {
            runtime::log!("{path}: cannot be started: {failure:?}");
            126
        }
    };
    process::end(Ended::Exited(status))
}

fn make_state(birth: &Birth) -> Result<(), Errno> {
    let segment = mapping::segment(STATE_PAGES)?;
    let access = (protection::READ | protection::WRITE).into();
    sys::range_map(Handle::SELF_RANGE, STATE_BASE, segment, 0, STATE_PAGES, access).map_err(|_| Errno::ENOMEM)?;
    with_block(|block| block.reset(segment.0, birth.process, birth.parent));
    threads::begin();
    Ok(())
}

/// Is that stream of the console's no terminal?
async fn is_pipe(id: DescriptionId) -> bool {
    let Ok(console) = proxy().server(server::CONSOLE) else { return false };
    console.status(id).await.is_ok_and(|status| status.kind == Kind::Pipe)
}

async fn start_first(run: system::Run) -> Result<(), (String, Failure)> {
    let terminal = Description {
        id: TERMINAL,
        server: server::CONSOLE,
        flags: O_RDWR,
        kind: CHARACTER_DEVICE,
        ..Description::default()
    };
    let mut first = [terminal; 3];
    for ((description, id), flags) in first.iter_mut().zip(STANDARD).zip([0, O_WRONLY, O_WRONLY]) {
        if is_pipe(id).await {
            (description.id, description.flags, description.kind) = (id, flags, super::files::type_bits(Kind::Pipe));
        }
    }
    let opened = with_state(|state| {
        let mut terminal = None;
        for description in first {
            match terminal.filter(|_| description.id == TERMINAL) {
                Some(known) => drop(state.descriptors.duplicate(known, 0, false)?),
                None => {
                    let number = state.descriptors.add(description, false)?;
                    terminal = terminal.or((description.id == TERMINAL).then_some(number));
                }
            }
        }
        Ok(())
    });
    let name = run.arguments.first().cloned().unwrap_or_default();
    opened.map_err(|errno: Errno| (name.clone(), errno.into()))?;
    if run.working_directory.starts_with('/') {
        with_state(|state| state.directory = Text::new(&personality::path::clean(&run.working_directory)));
    }
    let bytes = |texts: Vec<String>| texts.into_iter().map(String::into_bytes).collect::<Vec<_>>();
    let environment = bytes(run.environment);
    let arguments = bytes(run.arguments);
    // A bare name is looked for where a shell would.
    let candidates = if name.contains('/') {
        vec![name.clone()]
    } else {
        ["/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin"].map(|folder| format!("{folder}/{name}")).to_vec()
    };
    let mut result = Err(Failure::Errno(Errno::ENOENT));
    for path in candidates {
        let (arguments, environment) = (arguments.clone(), environment.clone());
        result = load(Program { path, opened: None, arguments, environment }).await;
        if result != Err(Failure::Errno(Errno::ENOENT)) {
            break;
        }
    }
    result.map_err(|failure| (name, failure))
}

/// Goes into the program for the first time.
fn enter() -> ! {
    entry::install(proxy().signal_bits);
    threads::load_current();
    runtime::rest(true);
    entry::resume()
}

/// execve. Comes back only with an error; on success the registers of the process state are the new
/// program's.
pub async fn execve(path: u64, arguments: u64, environment: u64) -> Outcome {
    let limit = stack::ARGUMENTS_BYTES_MAX;
    let named = user::path(path)?;
    let arguments = user::text_array(arguments, limit)?;
    let environment = user::text_array(environment, limit)?;
    let directory = with_state(|state| state.directory);
    let path = absolute(directory.as_str(), &named)?;
    let path = super::files::own_program(&path).unwrap_or(path);
    load(Program { path, opened: None, arguments, environment }).await?;
    threads::load_current();
    Ok(0)
}

/// execveat.
pub async fn execve_at([directory, path, arguments, environment, flags]: [u64; 5]) -> Outcome {
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let named = user::path(path)?;
    if named.is_empty() && flags & AT_EMPTY_PATH == 0 {
        return Err(Errno::ENOENT.into());
    }
    if directory as i32 == AT_FDCWD || named.starts_with('/') {
        if flags & AT_SYMLINK_NOFOLLOW != 0 {
            not_a_link(directory, &named).await?;
        }
        return execve(path, arguments, environment).await;
    }
    let found = description(directory)?;
    let by_descriptor = named.is_empty() && flags & AT_EMPTY_PATH != 0;
    if !found.is_file() {
        return Err(if by_descriptor { Errno::EACCES } else { Errno::ENOTDIR }.into());
    }
    let own = answer(proxy().files_of(found.id)?.path_of(found.id)).await?;
    let (path, opened) = if by_descriptor {
        let closes = with_state(|state| state.descriptors.close_on_exec(directory))?;
        (own, Some(Named { id: found.id, descriptor: directory, closes }))
    } else {
        if found.kind != super::files::type_bits(Kind::Directory) {
            return Err(Errno::ENOTDIR.into());
        }
        if flags & AT_SYMLINK_NOFOLLOW != 0 {
            not_a_link(directory, &named).await?;
        }
        (absolute(&own, &named)?, None)
    };
    let limit = stack::ARGUMENTS_BYTES_MAX;
    let arguments = user::text_array(arguments, limit)?;
    let environment = user::text_array(environment, limit)?;
    load(Program { path, opened, arguments, environment }).await?;
    threads::load_current();
    Ok(0)
}

/// `ELOOP` for a symbolic link.
async fn not_a_link(directory: u64, path: &str) -> Result<(), Failure> {
    let place = super::files::resolved(directory, path)?;
    let (_, found) = at_place(place, |files, name| files.status(name, false)).await?;
    if found.kind == Kind::SymbolicLink { Err(Errno::ELOOP.into()) } else { Ok(()) }
}

/// Checks everything, then replaces the program. After the point of no return a failure ends the
/// process, as Linux does.
async fn load(program: Program) -> Result<(), Failure> {
    let (program, file, image) = resolve(program).await?;
    let real_path = file.path().await?;
    let linker = match file.interpreter(&image).await? {
        Some(path) => {
            let file = Opened::open(&path).await?;
            let image = file.plan()?;
            Some((file, image))
        }
        None => None,
    };
    let mut random = [0; 16];
    runtime::fill_random(&mut random);
    // Built once to see that it fits before anything is given up.
    stack::build(
        STACK_TOP,
        &program.arguments,
        &program.environment,
        &file_name::to_bytes(&program.path),
        random,
        &fixed_values(&image, 0, 0),
    )?;

    threads::seize().await;
    shared_files::bring_everything().await;
    proxy().until_none_is_taken().await;
    let changes = vfork::changes();
    give_up_old();
    shared_files::drop_unused().await;
    if let Err(failure) = replace(&program, (&file, &real_path), &image, linker.as_ref(), random).await {
        runtime::log!("{}: cannot be loaded: {failure:?}", program.path);
        process::end(Ended::Signalled(SIGKILL));
    }
    begin_program();
    file.close();
    if let Some((file, _)) = linker {
        file.close();
    }
    describe(&program);
    if vfork::is_vforked() {
        // The parent finds closed what exec closes; it hears of both by ways of their own.
        proxy().until_all_is_closed().await;
    }
    vfork::release_parent(changes).await;
    Ok(())
}

/// Follows `#!` lines to an ELF file.
async fn resolve(mut program: Program) -> Result<(Program, Opened, Image), Failure> {
    for _ in 0..=SCRIPTS_MAX {
        let named = program.opened.take();
        let file = match named {
            Some(named) => Opened::reopen(named.id).await?,
            None => Opened::open(&program.path).await?,
        };
        let Some((name, argument)) = interpreter(&file.head)
            .map(|(name, argument)| (name.to_string(), argument.map(|text| text.as_bytes().to_vec())))
        else {
            return match file.plan() {
                Ok(image) => Ok((program, file, image)),
                Err(errno) => {
                    file.close();
                    Err(errno.into())
                }
            };
        };
        file.close();
        let mut arguments = vec![name.clone().into_bytes()];
        arguments.extend(argument);
        arguments.push(match named {
            // What is closed by then cannot be read by its interpreter.
            Some(Named { closes: true, .. }) => return Err(Errno::ENOENT.into()),
            Some(Named { descriptor, .. }) => format!("/dev/fd/{descriptor}").into_bytes(),
            None => file_name::to_bytes(&program.path),
        });
        arguments.extend(program.arguments.into_iter().skip(1));
        let directory = with_state(|state| state.directory);
        program = Program { path: absolute(directory.as_str(), &name)?, arguments, ..program };
    }
    Err(Errno::ELOOP.into())
}

/// The point of no return: other threads, old memory, handlers and close-on-exec descriptors go.
fn give_up_old() {
    threads::end_others();
    timers::delete_all();
    let _ = mapping::unmap(memory::LOWEST, abi::layout::USER_END & !(PAGE - 1));
    while let Some(number) = with_state(|state| state.descriptors.next_to_close_at_exec()) {
        close_description(number);
    }
    let discards = with_state(|state| {
        state.signals.reset_for_exec();
        (state.heap_start, state.heap_end, state.heap_segment) = (0, 0, 0);
        state.signals.is_ignored_by_choice(SIGCHLD)
    });
    let _ = proxy().process.watch_children(discards, true);
}

async fn replace(
    program: &Program,
    (file, real_path): (&Opened, &str),
    image: &Image,
    linker: Option<&(Opened, Image)>,
    random: [u8; 16],
) -> Result<(), Failure> {
    let base = image.base();
    file.load(image, base).await?;
    let heap = base + image.span().1;
    let mut entry = base + image.entry;
    let mut linker_base = 0;
    if let Some((file, image)) = linker {
        linker_base = place_interpreter(image)?;
        file.load(image, linker_base).await?;
        entry = linker_base + image.entry;
    }
    let stack = with_state(|state| stack_bytes(state.limits.soft(resource::STACK)));
    mapping::map_zeroed(STACK_TOP - stack, STACK_TOP, protection::READ | protection::WRITE)?;
    let fixed = fixed_values(image, base, linker_base);
    let stack = stack::build(
        STACK_TOP,
        &program.arguments,
        &program.environment,
        &file_name::to_bytes(&program.path),
        random,
        &fixed,
    )?;
    user::copy_out(stack.pointer, &stack.bytes)?;
    with_state(|state| {
        (state.heap_start, state.heap_end) = (heap, heap);
        state.program = Text::new(real_path);
        state.identity.run_program();
    });
    with_thread(|thread| {
        thread.registers =
            ProgramRegisters { rip: entry, rsp: stack.pointer, rflags: FRESH_FLAGS, ..ProgramRegisters::default() };
        (thread.vectors, thread.bases) = (machine::Image::fresh().0, [0; 2]);
        (thread.clear_id_at, thread.robust_at) = (0, 0);
        thread.signals.alternate = AlternateStack::default();
    });
    Ok(())
}

fn fixed_values(image: &Image, base: u64, linker_base: u64) -> [(u64, u64); 14] {
    let header_bytes = 56;
    let (users, groups, is_secure) = with_state(|state| {
        let own = &state.identity;
        (own.ids(true), own.ids(false), own.is_secure())
    });
    [
        (auxiliary::PHDR, if image.headers == 0 { 0 } else { base + image.headers }),
        (auxiliary::PHENT, header_bytes),
        (auxiliary::PHNUM, image.header_count),
        (auxiliary::PAGESZ, PAGE),
        (auxiliary::BASE, linker_base),
        (auxiliary::FLAGS, 0),
        (auxiliary::ENTRY, base + image.entry),
        (auxiliary::UID, users.real.into()),
        (auxiliary::EUID, users.effective.into()),
        (auxiliary::GID, groups.real.into()),
        (auxiliary::EGID, groups.effective.into()),
        (auxiliary::SECURE, is_secure.into()),
        (auxiliary::CLKTCK, TICKS_PER_S),
        (auxiliary::HWCAP, hardware()),
    ]
}

/// AT_HWCAP on x86-64 is CPUID leaf 1, EDX.
fn hardware() -> u64 {
    core::arch::x86_64::__cpuid(1).edx.into()
}

fn describe(program: &Program) {
    let line: Vec<_> = program.arguments.iter().map(|argument| String::from_utf8_lossy(argument)).collect();
    let mut line = line.join(" ");
    while line.len() > 128 {
        line.pop();
    }
    let name = base_name(&program.path);
    with_thread(|thread| {
        thread.name = [0; 16];
        let length = name.len().min(15);
        thread.name[..length].copy_from_slice(&name.as_bytes()[..length]);
    });
    let _ = proxy().process.describe(name.chars().take(15).collect(), line);
}
