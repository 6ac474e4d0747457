//! The name server: the table behind its contract. Restarted, it starts empty and spawn tells it again.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::rc::Rc;
use alloc::string::String;
use core::cell::RefCell;

use contracts::names::{NAME, Named, NamesError, NamesServer, serve_names};
use names_core::Table;
use runtime::{Peer, Start};

runtime::main!(component);

struct Service(RefCell<Table>);

impl NamesServer for Service {
    async fn register(&self, _: &Peer, entry: Named) -> Result<(), NamesError> {
        self.0.borrow_mut().register(entry)
    }

    async fn forget(&self, _: &Peer, component: String) -> Result<(), NamesError> {
        self.0.borrow_mut().forget(&component);
        Ok(())
    }

    async fn find(&self, _: &Peer, contract: String, core: u32, index: u32) -> Result<Named, NamesError> {
        self.0.borrow().find(&contract, core, index).cloned()
    }
}

async fn component(start: Start) {
    let service = Rc::new(Service(RefCell::default()));
    let mut channels = start.incoming(NAME);
    start.serving();
    loop {
        let channel = channels.next().await;
        runtime::spawn(serve_names(service.clone(), channel));
    }
}
