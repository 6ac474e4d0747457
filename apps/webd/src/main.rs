//! Serves the system's own page on port 80, unless a Linux program is to be run.
//!
//! A fixed number of workers, each with its part of the bulk region and one connection at a time:
//! the limit on memory and on clients served at once.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::rc::Rc;
use alloc::vec::Vec;
use contracts::BulkSpan;
use contracts::descriptions::{DescriptionId, DescriptionsClient};
use contracts::sockets::{Address, Family, SocketAddress, SocketKind, SocketsClient};
use core::cell::Cell;
use runtime::Start;
use webd::{Facts, HEAD_MAX, Step, step};

/// Connections served at once; more wait at TCP.
const WORKERS: u32 = 8;
/// Bytes of the bulk region for each.
const PART_BYTES: u32 = HEAD_MAX as u32;
/// A client that says nothing for this long is left.
const PATIENCE_NS: u64 = 10_000_000_000;
const PORT: u16 = 80;

struct Server {
    sockets: SocketsClient,
    descriptions: DescriptionsClient,
    start: Start,
    served: Cell<u64>,
}

impl Server {
    async fn listen(&self) -> Option<DescriptionId> {
        let id = self.sockets.socket(Family::Internet, SocketKind::Stream).await.ok()?;
        let address = Address::Internet(SocketAddress { address: [0; 4], port: PORT });
        self.sockets.bind(id, address).await.ok()?;
        self.sockets.listen(id, WORKERS).await.ok()?;
        Some(id)
    }

    async fn work(&self, listener: DescriptionId, worker: u32) {
        // A failed accept means that TCP is going: its restart ends us too.
        while let Ok(accepted) = self.sockets.accept(listener, true).await {
            let _ = runtime::timeout(PATIENCE_NS * 6, self.serve(accepted.id, worker)).await;
            let _ = self.descriptions.close(accepted.id).await;
        }
    }

    /// Answers requests until the client has enough; `None` when something fails.
    async fn serve(&self, id: DescriptionId, worker: u32) -> Option<()> {
        let span = BulkSpan { offset: worker * PART_BYTES, length: PART_BYTES };
        let mut request = Vec::new();
        loop {
            let facts = Facts {
                cores: self.start.cores(),
                core: self.start.core(),
                uptime_s: runtime::now_ns() / 1_000_000_000,
                served: self.served.get(),
            };
            match step(&request, &facts) {
                Step::More => {
                    let read = self.descriptions.read(id, span, None, true);
                    let length = runtime::timeout(PATIENCE_NS, read).await.ok()?.ok()?;
                    let mut bytes = alloc::vec![0; (length as usize).min(PART_BYTES as usize)];
                    self.descriptions.bulk().read(span.offset as usize, &mut bytes).ok()?;
                    if bytes.is_empty() {
                        return None;
                    }
                    request.extend(bytes);
                }
                Step::Answer { bytes, taken, keep } => {
                    self.send(id, span, bytes.as_bytes()).await?;
                    self.served.set(self.served.get() + 1);
                    request.drain(..taken.min(request.len()));
                    if !keep {
                        return Some(());
                    }
                }
            }
        }
    }

    async fn send(&self, id: DescriptionId, span: BulkSpan, bytes: &[u8]) -> Option<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, _) = rest.split_at(rest.len().min(span.length as usize));
            self.descriptions.bulk().write(span.offset as usize, piece).ok()?;
            let piece = BulkSpan { length: piece.len() as u32, ..span };
            let sent = self.descriptions.write(id, piece, None, true).await.ok()?;
            rest = rest.get(sent as usize..)?;
        }
        Some(())
    }
}

async fn component(start: Start) {
    let run = start.file(system::RUN_PATH).and_then(|bytes| system::decode::<system::Run>(bytes).ok());
    if run.is_some_and(|run| !run.arguments.is_empty()) {
        start.serving();
        return;
    }
    let (Ok(sockets), Ok(descriptions)) =
        (start.client::<SocketsClient>("tcp"), start.client::<DescriptionsClient>("tcp"))
    else {
        runtime::log!("no channels to tcp: correct system/*.toml");
        return;
    };
    let server = Rc::new(Server { sockets, descriptions, start: start.clone(), served: Cell::new(0) });
    let Some(listener) = server.listen().await else {
        runtime::log!("port {PORT} cannot be had");
        return;
    };
    start.serving();
    runtime::log!("serving on port {PORT}");
    for worker in 1..WORKERS {
        let server = server.clone();
        runtime::spawn(async move { server.work(listener, worker).await });
    }
    server.work(listener, 0).await;
}

runtime::main!(component);
