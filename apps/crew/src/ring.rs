//! The ring: each dispatcher asks the next one, and the last the first.

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use core::fmt;
use core::future::{Future, poll_fn};
use core::task::{Poll, Waker};

use abi::Handle;
use channel::CallError;
use contract::contract;
use contracts::endpoint::BindError;
use contracts::lookup::LookupClient;
use contracts::names::{NamesClient, NamesEvent};
use contracts::spawn::SpawnClient;
use runtime::{Peer, Program, Start};
use serde::{Deserialize, Serialize};

use crate::common::Common;

/// Why a dispatcher did not join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinError {
    /// The description gives no pool `crew`.
    NoPool,
    /// The kernel of that core refused; the name of its error.
    Refused(u32, String),
    /// The one after that core's does not answer.
    NoAnswer(u32),
    /// That core's name cache does not tell where spawn is, or tells it anew each time.
    NoName(u32),
}

impl fmt::Display for JoinError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::NoPool => formatter.write_str("there is no pool for it; see system/programs.toml"),
            JoinError::Refused(core, error) => {
                write!(formatter, "core {core} refuses a dispatcher its memory ({error})")
            }
            JoinError::NoName(core) => write!(formatter, "the name cache of core {core} does not tell of spawn"),
            JoinError::NoAnswer(core) => write!(formatter, "the dispatcher after core {core}'s does not answer"),
        }
    }
}

/// Coming together. Order: as sent. Rights: the dispatchers of one program.
#[contract(name = "crew", version = 1)]
pub trait Crew {
    /// Shows the range of that id of the pool, adds itself to the list there and has the next one
    /// do so. Gives how many did.
    #[op]
    async fn join(&self, range: u64) -> Result<u32, JoinError>;
}

struct Member {
    start: Start,
    program: Program,
    pool: Handle,
    joined: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl CrewServer for Member {
    async fn join(&self, _: &Peer, range: u64) -> Result<u32, JoinError> {
        if self.program.number == 0 {
            // It went round.
            return Ok(0);
        }
        let core = self.start.core();
        let common = Common::mapped(self.pool, range).map_err(|error| JoinError::Refused(core, error.name().into()))?;
        look_up(&self.start).await?;
        common.join(self.program.number, core, self.start.generation());
        self.joined.set(true);
        self.waker.take().into_iter().for_each(Waker::wake);
        Ok(pass_on(&self.start, &self.program, range).await? + 1)
    }
}

/// Asks this core's name cache, and through it a server that was there before this core's monitor;
/// then what the cache knows.
pub(crate) async fn look_up(start: &Start) -> Result<(), JoinError> {
    look_up_twice(start).await.map_err(|error| {
        runtime::log!("lookup: {error}");
        JoinError::NoName(start.core())
    })
}

/// A channel of our own to the name server, which the description does not wire.
async fn names(start: &Start) -> Result<NamesClient, String> {
    start.bind::<NamesClient>(0).await.map_err(|error| format!("names: {error:?}"))
}

/// There is no channel to a contract that the description does not name, and none to a second name
/// server.
async fn refused(start: &Start) -> Result<(), String> {
    match (start.bind::<SpawnClient>(0).await.map(drop), start.bind::<NamesClient>(1).await.map(drop)) {
        (Err(BindError::NotAllowed), Err(BindError::NotFound)) => Ok(()),
        others => Err(format!("asking for spawn and a second name server gave {others:?}")),
    }
}

async fn look_up_twice(start: &Start) -> Result<(), String> {
    let lookup = start.client::<LookupClient>("monitor").map_err(|error| format!("{error:?}"))?;
    let find = async || lookup.find("spawn".into(), 0).await.map_err(|error| format!("{error:?}"));
    let counters = async || lookup.counters().await.map_err(|error| format!("{error:?}"));
    let first = find().await?;
    let direct = names(start).await?.find("spawn".into(), start.core(), 0).await;
    if direct.as_ref() != Ok(&first) {
        return Err(format!("{first:?}, and the name server itself says {direct:?}"));
    }
    let before = counters().await?;
    let again = find().await?;
    let after = counters().await?;
    match first == again && after.hits > before.hits {
        true => Ok(()),
        false => Err(format!("{first:?}, then {again:?}; {before:?}, then {after:?}")),
    }
}

/// Says each time that the name server came back and answers on the channel that was asked for.
pub(crate) async fn follow(start: Start) {
    let names = match refused(&start).await {
        Ok(()) => names(&start).await,
        Err(why) => Err(why),
    };
    let names = match names {
        Ok(names) => names,
        Err(why) => return runtime::log!("failed: {why}"),
    };
    runtime::log!("follows the name server");
    loop {
        match names.next_event().await {
            NamesEvent::PeerRestarted => {
                // It may not have been told anything yet.
                let answer = names.find("crew".into(), 0, 0).await;
                match answer {
                    Ok(_) | Err(CallError::Server(_)) => runtime::log!("reaches the name server again"),
                    Err(error) => runtime::log!("failed: the name server is back and says {error:?}"),
                }
            }
            NamesEvent::Closed => return runtime::log!("failed: its channel to the name server was closed"),
            NamesEvent::Lost | NamesEvent::Changed { .. } => {}
        }
    }
}

/// Asks the next dispatcher; alone there is none.
pub(crate) async fn pass_on(start: &Start, program: &Program, range: u64) -> Result<u32, JoinError> {
    if program.cores.len() == 1 {
        return Ok(0);
    }
    let next = start.client::<CrewClient>(&program.dispatcher(program.number + 1));
    let next = next.map_err(|_| JoinError::NoAnswer(start.core()))?;
    next.join(range).await.map_err(|error| match error {
        channel::CallError::Server(error) => error,
        other => {
            runtime::log!("{}", format!("{other:?}"));
            JoinError::NoAnswer(start.core())
        }
    })
}

/// Serves the one before for ever; the future ends when this one has joined.
pub(crate) fn serve(
    start: &Start,
    program: &Program,
    pool: Handle,
) -> impl Future<Output = Result<(), JoinError>> + use<> {
    let (start, program) = (start.clone(), program.clone());
    let mut incoming = start.incoming(NAME);
    let member = Rc::new(Member { start, program, pool, joined: Cell::new(false), waker: Cell::new(None) });
    let server = member.clone();
    runtime::spawn(async move {
        loop {
            let channel = incoming.next().await;
            runtime::spawn(serve_crew(server.clone(), channel));
        }
    });
    poll_fn(move |context| {
        if member.joined.get() {
            return Poll::Ready(Ok(()));
        }
        member.waker.set(Some(context.waker().clone()));
        Poll::Pending
    })
}
