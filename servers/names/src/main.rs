//! The name server: the table behind its contract. Restarted, it starts empty and spawn tells it
//! again.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

use channel::ServerChannel;
use contracts::names::{NAME, Named, NamesError, NamesEvents, NamesServer, serve_names};
use names_core::{Asked, Table};
use runtime::{Peer, Start};

runtime::main!(component);

#[derive(Default)]
struct Service {
    table: RefCell<Table>,
    clients: RefCell<Vec<Client>>,
}

/// A client, and what it may keep of what it was answered.
struct Client {
    peer: Peer,
    asked: Asked,
}

/// Whether the client will hear of it.
fn tell(peer: &Peer, contract: &str) -> bool {
    NamesEvents::new(peer).changed(contract.into()).is_ok()
}

impl Service {
    async fn serve(self: Rc<Self>, channel: ServerChannel) {
        let peer = channel.peer().clone();
        self.clients.borrow_mut().push(Client { peer: peer.clone(), asked: Asked::default() });
        serve_names(self.clone(), channel).await;
        self.clients.borrow_mut().retain(|client| client.peer != peer);
    }

    fn changed(&self, contract: &str) {
        for Client { peer, asked } in self.clients.borrow_mut().iter_mut() {
            asked.changed(contract, |contract| tell(peer, contract));
        }
    }
}

impl NamesServer for Service {
    async fn register(&self, _: &Peer, entry: Named) -> Result<(), NamesError> {
        let contract = entry.contract.clone();
        if self.table.borrow_mut().register(entry)? {
            self.changed(&contract);
        }
        Ok(())
    }

    async fn unregister(&self, _: &Peer, component: String) -> Result<(), NamesError> {
        let contracts = self.table.borrow_mut().unregister(&component);
        contracts.iter().for_each(|contract| self.changed(contract));
        Ok(())
    }

    async fn told_all(&self, _: &Peer) -> Result<(), NamesError> {
        self.table.borrow_mut().told_all();
        Ok(())
    }

    async fn find(&self, peer: &Peer, contract: String, core: u32, index: u32) -> Result<Named, NamesError> {
        let mut clients = self.clients.borrow_mut();
        if let Some(Client { asked, .. }) = clients.iter_mut().find(|client| client.peer == *peer) {
            asked.answered(&contract, |contract| tell(peer, contract));
        }
        self.table.borrow().find(&contract, core, index).cloned()
    }
}

async fn component(start: Start) {
    let service = Rc::new(Service::default());
    let mut channels = start.incoming(NAME);
    start.serving();
    loop {
        let channel = channels.next().await;
        runtime::spawn(service.clone().serve(channel));
    }
}
