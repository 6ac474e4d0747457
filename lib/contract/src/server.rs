//! The answering side's stub.

use proc_macro2::TokenStream;
use quote::quote;

use crate::model::{Contract, Kind, Method};

pub fn generate(contract: &Contract) -> TokenStream {
    let (server, serve) = (server_trait(contract), serve(contract));
    let events = events(contract);
    quote! { #server #serve #events }
}

fn server_trait(contract: &Contract) -> TokenStream {
    let (visibility, name, docs) = (&contract.visibility, contract.named("Server"), &contract.docs);
    let methods = contract.operations().map(|method| {
        let (docs, name, parameters) = (&method.docs, &method.name, method.parameters());
        match (&method.result, &method.default) {
            (Some((whole, _, _)), None) => quote! {
                #(#docs)*
                fn #name(&self, peer: &::channel::Peer, #parameters) -> impl ::core::future::Future<Output = #whole>;
            },
            (Some((whole, _, _)), Some(default)) => quote! {
                #(#docs)*
                #[allow(unused_variables)]
                fn #name(&self, peer: &::channel::Peer, #parameters) -> impl ::core::future::Future<Output = #whole> {
                    async move #default
                }
            },
            (None, _) => quote! {
                #(#docs)*
                fn #name(&self, peer: &::channel::Peer, #parameters);
            },
        }
    });
    quote! {
        #(#docs)*
        #visibility trait #name: 'static {
            #(#methods)*

            /// The client left for good: what is kept for it can go.
            fn peer_closed(&self, peer: &::channel::Peer) {
                let _ = peer;
            }

            /// The client was restarted: its calls were dropped, and it knows nothing of what it
            /// asked before.
            fn peer_restarted(&self, peer: &::channel::Peer) {
                let _ = peer;
            }
        }
    }
}

fn serve(contract: &Contract) -> TokenStream {
    let (visibility, server, dispatch, serve) =
        (&contract.visibility, contract.named("Server"), contract.named("Dispatch"), contract.serve_name());
    let calls = contract.operations().filter(|method| matches!(method.kind, Kind::Call { .. })).map(|method| {
        let Method { number, name, .. } = method;
        let (names, wire) = (method.names(), method.wire_type());
        quote! {
            #number => {
                let (#names): #wire = ::channel::decode(body)?;
                let (server, peer) = (self.0.clone(), peer.clone());
                Ok(::alloc::boxed::Box::pin(async move {
                    let result = server.#name(&peer, #names).await;
                    peer.answer(correlation, &result);
                }))
            }
        }
    });
    let one_ways = contract.operations().filter(|method| method.kind == Kind::OneWay).map(|method| {
        let Method { number, name, .. } = method;
        let (names, wire) = (method.names(), method.wire_type());
        quote! {
            #number => {
                let (#names): #wire = ::channel::decode(body)?;
                self.0.#name(peer, #names);
                Ok(())
            }
        }
    });
    quote! {
        struct #dispatch<S>(::alloc::rc::Rc<S>);

        impl<S: #server> ::channel::Dispatch for #dispatch<S> {
            #[allow(unused_variables)]
            fn request(
                &self, peer: &::channel::Peer, operation: u16, correlation: u32, body: &[u8],
            ) -> ::core::result::Result<::channel::Task, ::channel::Broken> {
                match operation {
                    #(#calls)*
                    _ => Err(::channel::Broken),
                }
            }

            #[allow(unused_variables)]
            fn one_way(&self, peer: &::channel::Peer, operation: u16, body: &[u8]) -> ::core::result::Result<(), ::channel::Broken> {
                match operation {
                    #(#one_ways)*
                    _ => Err(::channel::Broken),
                }
            }

            fn closed(&self, peer: &::channel::Peer) {
                self.0.peer_closed(peer);
            }

            fn restarted(&self, peer: &::channel::Peer) {
                self.0.peer_restarted(peer);
            }
        }

        /// Serves a client, again after each restart of it, until the channel is taken apart. Spawn
        /// one for each channel.
        #visibility fn #serve<S: #server>(server: ::alloc::rc::Rc<S>, channel: ::channel::ServerChannel) -> impl ::core::future::Future<Output = ()> {
            channel.serve(HASH, ::alloc::rc::Rc::new(#dispatch(server)))
        }
    }
}

fn events(contract: &Contract) -> TokenStream {
    let (visibility, name) = (&contract.visibility, contract.named("Events"));
    let events = contract.events().map(|method| {
        let Method { docs, number, name, .. } = method;
        let (parameters, wire) = (method.parameters(), method.wire_value());
        quote! {
            #(#docs)*
            pub fn #name(&self, #parameters) -> ::core::result::Result<(), ::channel::SendError> {
                self.peer.event(#number, &#wire)
            }
        }
    });
    quote! {
        /// Sends the contract's events to one client.
        #[derive(Clone)]
        #visibility struct #name {
            peer: ::channel::Peer,
        }

        impl #name {
            /// For that client.
            pub fn new(peer: &::channel::Peer) -> Self {
                Self { peer: peer.clone() }
            }

            /// Tells that events were lost, wherever that was.
            pub fn lost(&self) {
                self.peer.lost();
            }

            /// Waits until one more event can be sent, or the client has left.
            pub async fn room(&self) {
                self.peer.room().await
            }

            /// Can one more event be sent? One that is refused as `Full` is lost, which the client
            /// is told.
            pub fn has_room(&self) -> bool {
                self.peer.has_room()
            }

            /// The client.
            pub fn peer(&self) -> &::channel::Peer {
                &self.peer
            }

            #(#events)*
        }
    }
}
