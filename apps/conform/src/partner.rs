//! The next core as a test's partner: named functions are run there.

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;

use contract::contract;
use runtime::{Peer, Start};
use serde::{Deserialize, Serialize};

use crate::Fixture;
use crate::table::{Failure, Words};
use crate::{suites, turns};

/// Start of the components' names; the core's number follows.
pub const COMPONENT: &str = "conform-";

/// Why a partner did not do it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActError {
    /// No suite has a far function of that name.
    Unknown,
    /// It failed; why, and the line.
    Failed(String, u32),
}

/// Acting for a test of another core. Order: as sent. Limits: one function runs at a time, to its
/// end. Rights: `conform` only.
#[contract(name = "partner", version = 1)]
pub trait Acts {
    /// Runs a far function by its name, `SUITE/FUNCTION`.
    #[op]
    async fn act(&self, what: String, words: [u64; 4]) -> Result<[u64; 4], ActError>;

    /// The core before is done with a phase of its tests: the shared words say how far it is
    /// ([`crate::turns`]).
    #[op(oneway)]
    fn news(&self);
}

/// Asks the next core.
pub struct Partner {
    client: ActsClient,
}

impl Partner {
    /// The next core's; `None` on a machine of one core.
    pub fn next(start: &Start) -> Option<Partner> {
        let core = (start.core() + 1) % start.cores();
        start.client::<ActsClient>(&format!("{COMPONENT}{core}")).ok().map(|client| Partner { client })
    }

    /// Has the next core run the far function `what` (`SUITE/FUNCTION`). It is asked at once; this
    /// future waits for the answer.
    pub fn act(&self, what: &str, words: Words) -> impl Future<Output = Result<Words, Failure>> + use<> {
        let call = self.client.act(what.into(), words);
        let what = String::from(what);
        async move { call.await.map_err(|error| Failure::new(format!("{what} on the next core: {error:?}"))) }
    }

    /// Has the next core look how far we are. Lost if the channel is full: it looks by itself,
    /// later.
    pub fn tell(&self) {
        let _ = self.client.news();
    }
}

struct Server {
    start: Start,
}

impl ActsServer for Server {
    async fn act(&self, _peer: &Peer, what: String, words: [u64; 4]) -> Result<[u64; 4], ActError> {
        let far = suites::ALL.iter().flat_map(|suite| suite.far.iter().map(move |far| (suite.name, far)));
        let mut found = far.filter(|(suite, far)| what.split_once('/') == Some((suite, far.name)));
        let (_, far) = found.next().ok_or(ActError::Unknown)?;
        let failed = |failure: Failure| ActError::Failed(failure.why, failure.line);
        let fixture = Fixture::new(&self.start).map_err(failed)?;
        let result = (far.body)(&fixture, words);
        let end = fixture.end(result.is_ok());
        let words = result.map_err(failed)?;
        end.map_err(failed)?;
        Ok(words)
    }

    fn news(&self, _: &Peer) {
        executor::post(turns::NEWS);
    }
}

/// Serves the core before this one for ever.
pub async fn serve(start: Start) {
    let server = Rc::new(Server { start: start.clone() });
    let mut incoming = start.incoming(NAME);
    loop {
        let channel = incoming.next().await;
        runtime::spawn(serve_acts(server.clone(), channel));
    }
}
