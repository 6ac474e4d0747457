//! The file server between clients that are played.

mod clients;
mod contents;
mod mounted;
mod names;
mod opening;
mod played;
mod proc;
mod seals;

use std::pin::pin;
use std::rc::Rc;

use channel::{
    CallError, ClientChannel, Layout, Memory, Peer, ServerChannel, Wiring, loopback_memory, loopback_wiring,
};
use contracts::BulkSpan;
use contracts::descriptions::{DescriptionError, DescriptionId, DescriptionsClient, Kind, Status, serve_descriptions};
use contracts::files::{FilesClient, FilesServer, Hold, Lock, LockKind, Name, Opened, PathError, open, serve_files};
use contracts::testing::process::Played;
use contracts::testing::{gives_to_the_newborn_only, is_sent, two_programs};
use fs_core::store::Store;
use system::Mount;

use crate::server::Server;
use crate::tests::played::CORES;

/// More than one request moves.
const BULK: Layout = Layout { ring_slots: 64, bulk_bytes: 320 << 10 };
/// Where what is read and written lies in it.
const SPAN_AT: u32 = 100;
/// The process of each client here, and as whom it acts.
const PROCESS: u32 = 7;
const OWNER: (u32, u32) = (3, 4);
/// Pages that bytes of files may take.
const PAGES: u64 = 200;

/// The server, with what a fresh store has; the volume is somewhere if `mount` says so.
fn mounted(mount: Option<Mount>) -> (Rc<Server>, Rc<Played>) {
    let mut store = Store::new(PAGES);
    store.add_missing_directories().unwrap();
    mount.iter().for_each(|mount| store.mount(&mount.path).unwrap());
    let played = Rc::new(Played::default());
    let (processes, memory) = played::clients(&played);
    (Rc::new(Server::new(store, Some(processes), Some(memory), CORES, mount)), played)
}

/// The server of a machine without a volume.
fn server() -> Rc<Server> {
    mounted(None).0
}

/// A program that has the server's two channels.
struct Client {
    files: FilesClient,
    descriptions: DescriptionsClient,
}

impl Client {
    /// `number` tells programs apart.
    fn of(service: &Rc<Server>, number: u32) -> Client {
        Client::over([loopback_memory(Layout::default()), loopback_memory(BULK)], service, number)
    }

    /// Over memory of a channel for each contract.
    fn over([files, descriptions]: [[Memory; 2]; 2], service: &Rc<Server>, number: u32) -> Client {
        let ends = |[client, served]: [Memory; 2]| {
            let served = ServerChannel::new(Wiring { peer_set: number, ..loopback_wiring(served, false) });
            (ClientChannel::new(loopback_wiring(client, true)), served)
        };
        let ((files, served_files), (descriptions, served)) = (ends(files), ends(descriptions));
        runtime::spawn(serve_files(service.clone(), served_files));
        service.open.clients.add(&served);
        runtime::spawn(serve_descriptions(service.clone(), served));
        Client { files: FilesClient::new(files), descriptions: DescriptionsClient::new(descriptions) }
    }

    async fn open(&self, path: &str, flags: u32) -> Result<Opened, CallError<PathError>> {
        self.files.open(name(path), flags, 0o640).await
    }

    /// What must be there, to read and to write.
    async fn opened(&self, path: &str) -> DescriptionId {
        self.open(path, open::READ | open::WRITE | open::CREATE).await.unwrap().id
    }

    /// What must be there, to read.
    async fn opened_to_read(&self, path: &str) -> DescriptionId {
        self.open(path, open::READ).await.unwrap().id
    }

    async fn read(
        &self,
        id: DescriptionId,
        at: Option<u64>,
        length: u32,
    ) -> Result<Vec<u8>, CallError<DescriptionError>> {
        let span = BulkSpan { offset: SPAN_AT, length };
        let count = self.descriptions.read(id, span, at, true).await?;
        Ok(self.taken(count))
    }

    /// What a read put into the bulk.
    fn taken(&self, count: u32) -> Vec<u8> {
        let mut bytes = vec![0; count as usize];
        self.descriptions.bulk().read(SPAN_AT as usize, &mut bytes).unwrap();
        bytes
    }

    async fn write(
        &self,
        id: DescriptionId,
        at: Option<u64>,
        bytes: &[u8],
    ) -> Result<u32, CallError<DescriptionError>> {
        self.descriptions.bulk().write(SPAN_AT as usize, bytes).unwrap();
        let span = BulkSpan { offset: SPAN_AT, length: bytes.len() as u32 };
        self.descriptions.write(id, span, at, true).await
    }

    /// Of the last part of a path itself, whatever it is.
    async fn status(&self, path: &str) -> Result<Status, CallError<PathError>> {
        self.files.status(name(path), false).await
    }

    async fn kind(&self, path: &str) -> Result<Kind, CallError<PathError>> {
        self.status(path).await.map(|status| status.kind)
    }

    /// All that a directory's description lists.
    async fn listed(&self, id: DescriptionId) -> Vec<(String, u64, Kind)> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let (some, next) = self.descriptions.entries(id, from).await.unwrap();
            if some.is_empty() {
                return all;
            }
            assert!(next > from, "it goes on");
            all.extend(some.into_iter().map(|entry| (entry.name, entry.inode, entry.kind)));
            from = next;
        }
    }
}

fn name(path: &str) -> Name {
    Name { directory: None, path: path.into(), process: PROCESS, owner: OWNER }
}

/// A path from where a directory's description is.
fn from(directory: DescriptionId, path: &str) -> Name {
    Name { directory: Some(directory), ..name(path) }
}

/// How an operation on a path is refused.
fn refused<T>(error: DescriptionError) -> Result<T, CallError<PathError>> {
    Err(CallError::Server(PathError::Failed(error)))
}

/// How one on a description is.
fn denied<T>(error: DescriptionError) -> Result<T, CallError<DescriptionError>> {
    Err(CallError::Server(error))
}

#[test]
fn a_client_gives_what_it_holds_to_the_newborn_only() {
    runtime::testing::run(async {
        let service = Rc::new(Server::new(Store::new(64), None, None, 1, None));
        let serve = |channel| {
            runtime::spawn(serve_descriptions(service.clone(), channel));
        };
        gives_to_the_newborn_only(|channel| service.open.clients.add(channel), serve).await;
    });
}

/// Asks for the whole file by flock(2), without waiting.
async fn lock(service: &Server, peer: &Peer, id: DescriptionId) -> Result<(), DescriptionError> {
    let whole = Lock { kind: LockKind::Whole, hold: Some(Hold::Exclusive), from: 0, to: u64::MAX, process: 1 };
    FilesServer::lock(service, peer, id, whole, false).await
}

/// A close is told by another channel than the next program's request, which may be looked at
/// first: the lock is free all the same.
#[test]
fn a_lock_is_free_once_its_holders_close_was_sent() {
    runtime::testing::run(async {
        let service = Rc::new(Server::new(Store::new(64), None, None, 1, None));
        let (client, [first, second]) = two_programs(|channel| service.open.clients.add(channel));
        let peers = [first.peer().clone(), second.peer().clone()];
        runtime::spawn(serve_descriptions(service.clone(), first));
        let file = || Name { directory: None, path: "/file".into(), process: 1, owner: (0, 0) };
        let flags = open::READ | open::WRITE | open::CREATE;
        let mut ids = [0; 2];
        for (peer, id) in peers.iter().zip(&mut ids) {
            *id = service.open(peer, file(), flags, 0o600).await.unwrap().id;
        }
        assert_eq!(lock(&service, &peers[0], ids[0]).await, Ok(()));
        assert_eq!(lock(&service, &peers[1], ids[1]).await, Err(DescriptionError::WouldBlock));
        let mut closing = pin!(client.close(ids[0]));
        is_sent(closing.as_mut()).await;
        assert_eq!(lock(&service, &peers[1], ids[1]).await, Ok(()));
    });
}
