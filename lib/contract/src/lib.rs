//! The stub compiler: `#[contract]` turns a trait into client, server and wire types.
//!
//! From `trait Files` come `FilesClient`, `FilesEvent`, `FilesServer`, `FilesEvents`, `serve_files`
//! and the constants `NAME`, `VERSION`, `HASH`. Operations and events are numbered from 1 in the
//! order of the trait; `HASH` covers name, version and every signature, and a channel whose sides
//! differ in it is closed at the first message.
//!
//! Invariants: an operation or contract without documentation does not compile; what arrives is
//! decoded completely or refused. Deliberately unknown here: transports (`channel`), executors.
#![forbid(unsafe_code)]

mod client;
mod model;
mod server;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use quote::quote;
use syn::{ItemTrait, parse_macro_input};

/// See the crate's description and any file under `contracts/`.
///
/// `#[contract(name = "files", version = 1)]` on a trait whose methods carry one of
/// - `#[op]`: `async fn name(&self, ..) -> Result<T, E>`, ends with `PeerRestarted` if the server
///   restarts; `#[op(repeatable)]` is sent again instead;
/// - `#[op(oneway)]`: `fn name(&self, ..)`, client to server, no reply;
/// - `#[event]`: `fn name(&self, ..)`, server to client, no reply.
///
/// An `#[op]` with a body has that answer at servers that give none of their own.
#[proc_macro_attribute]
pub fn contract(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(attribute as model::Arguments);
    let item = parse_macro_input!(item as ItemTrait);
    let contract = match model::Contract::read(arguments, item) {
        Ok(contract) => contract,
        Err(error) => return error.to_compile_error().into(),
    };
    let (constants, client, server) = (contract.constants(), client::generate(&contract), server::generate(&contract));
    quote! { #constants #client #server }.into()
}
