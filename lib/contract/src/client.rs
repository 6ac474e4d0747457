//! The calling side's stub.

use proc_macro2::TokenStream;
use quote::quote;

use crate::model::{Contract, Kind, Method};

pub fn generate(contract: &Contract) -> TokenStream {
    let (visibility, name, docs) = (&contract.visibility, contract.named("Client"), &contract.docs);
    let event = contract.named("Event");
    let operations = contract.operations().map(operation);
    let variants = contract.events().map(|method| {
        let (docs, variant, fields) = (&method.docs, method.variant(), method.parameters());
        quote!(#(#docs)* #variant { #fields },)
    });
    let arms = contract.events().map(|method| {
        let (number, variant, names, wire) = (method.number, method.variant(), method.names(), method.wire_type());
        quote! {
            ::channel::ClientEvent::Event(#number, body) => ::channel::decode::<#wire>(&body).ok().map(|(#names)| #event::#variant { #names }),
        }
    });
    quote! {
        #(#docs)*
        #[derive(Clone)]
        #visibility struct #name {
            channel: ::alloc::rc::Rc<::channel::ClientChannel>,
        }

        impl #name {
            /// A client over a channel that is wired for this contract.
            pub fn new(channel: ::alloc::rc::Rc<::channel::ClientChannel>) -> Self {
                channel.bind(HASH);
                Self { channel }
            }

            /// The channel.
            pub fn channel(&self) -> &::alloc::rc::Rc<::channel::ClientChannel> {
                &self.channel
            }

            /// The channel's bulk area.
            pub fn bulk(&self) -> ::channel::Bulk {
                self.channel.bulk()
            }

            /// The server's next event. One task only may wait for events.
            pub async fn next_event(&self) -> #event {
                let decoded = match self.channel.next_event().await {
                    #(#arms)*
                    ::channel::ClientEvent::Event(..) => None,
                    ::channel::ClientEvent::Lost => Some(#event::Lost),
                    ::channel::ClientEvent::PeerRestarted => Some(#event::PeerRestarted),
                    ::channel::ClientEvent::Closed => Some(#event::Closed),
                };
                // What is no event of this contract ends the channel.
                decoded.unwrap_or_else(|| {
                    self.channel.refuse();
                    #event::Closed
                })
            }

            #(#operations)*
        }

        impl ::channel::Client for #name {
            const NAME: &'static str = NAME;
            fn over(channel: ::alloc::rc::Rc<::channel::ClientChannel>) -> Self {
                Self::new(channel)
            }
            fn channel(&self) -> &::alloc::rc::Rc<::channel::ClientChannel> {
                &self.channel
            }
        }

        /// Events of the contract and of its channel.
        #[derive(Clone, Debug)]
        #visibility enum #event {
            #(#variants)*
            /// Events came faster than they were taken. Remedy: ask the server how things stand.
            Lost,
            /// The server was restarted.
            PeerRestarted,
            /// The channel is over; no event will follow until the server was restarted.
            Closed,
        }
    }
}

fn operation(method: &Method) -> TokenStream {
    let Method { docs, name, number, .. } = method;
    let (parameters, wire) = (method.parameters(), method.wire_value());
    match (method.kind, &method.result) {
        (Kind::Call { repeatable }, Some((_, value, error))) => quote! {
            #(#docs)*
            pub fn #name(&self, #parameters) -> ::channel::Call<#value, #error> {
                self.channel.call(#number, #repeatable, &#wire)
            }
        },
        _ => quote! {
            #(#docs)*
            pub fn #name(&self, #parameters) -> ::core::result::Result<(), ::channel::SendError> {
                self.channel.send(#number, &#wire)
            }
        },
    }
}
