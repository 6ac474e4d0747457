//! What servers of files do alike: they close what nobody holds any more, settle what a sender left
//! in flight, and serve their clients.

use alloc::rc::Rc;
use alloc::vec::Vec;

use channel::{IN_FLIGHT, Peer};
use contracts::descriptions::{DescriptionId, DescriptionsServer, serve_descriptions};
use contracts::files::{FilesServer, serve_files};
use contracts::in_flight::{self, Exporter};
use contracts::process::ProcessClient;
use contracts::{descriptions, files};
use runtime::Start;

use crate::{Descriptions, Target};

/// A server of files.
pub trait Server: 'static {
    /// What its descriptions are of.
    type Target: Target + 'static;

    /// What is open.
    fn descriptions(&self) -> &Descriptions<Self::Target>;

    /// The last one that held a description of it has let go.
    fn closed(&self, target: Self::Target);

    /// A client gives one reference back. Whether it had one.
    fn release(&self, client: u64, id: DescriptionId) -> bool {
        let released = self.descriptions().release(client, id, false);
        released.last.into_iter().for_each(|target| self.closed(target));
        released.was_held
    }

    /// Releases all that a client held, which ended.
    fn release_all_of(&self, gone: &Peer) {
        self.descriptions().release_all_of(gone, |target| self.closed(target));
    }
}

/// The references of what is in flight.
struct InFlight<S>(Rc<S>);

impl<S: Server> Exporter for InFlight<S> {
    fn settle(&self, ticket: u64) {
        let exported = self.0.descriptions().table.borrow_mut().settle(ticket);
        if let Some(id) = exported {
            self.0.release(IN_FLIGHT, id);
        }
    }

    fn tickets(&self) -> Vec<u64> {
        self.0.descriptions().table.borrow().tickets_of(|_| true)
    }
}

/// Hears from the process server of what will not be claimed, and asks it of what a sender that
/// ended left.
pub fn settle_in_flight<S: Server>(server: &Rc<S>, processes: &ProcessClient) {
    let (lost, unsure) = (InFlight(server.clone()), InFlight(server.clone()));
    let (told, asked) = (processes.clone(), processes.clone());
    runtime::spawn(async move { in_flight::listen(&lost, &told).await });
    runtime::spawn(async move { unsure.0.descriptions().settle_unsent(&unsure, &asked).await });
}

/// Serves files and what is open of them, for as long as the component runs.
pub async fn serve<S: Server + DescriptionsServer + FilesServer>(server: Rc<S>, start: &Start) {
    let mut channels = start.incoming(descriptions::NAME);
    let serving = server.clone();
    runtime::spawn(async move {
        loop {
            let channel = channels.next().await;
            serving.descriptions().clients.add(&channel);
            runtime::spawn(serve_descriptions(serving.clone(), channel));
        }
    });
    let mut channels = start.incoming(files::NAME);
    start.serving();
    loop {
        let channel = channels.next().await;
        runtime::spawn(serve_files(server.clone(), channel));
    }
}
