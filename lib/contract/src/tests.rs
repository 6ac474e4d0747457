//! What a trait becomes, as tokens, and what is refused of one. That the stubs do what they say is
//! tested where there are channels: `lib/runtime/tests`.

use crate::model::{Arguments, Contract};
use crate::{client, server};
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Item, TraitItem};

const COUNTS: &str = "
/// Counts.
pub trait OpenCounts {
    /// Adds.
    #[op]
    async fn add(&self, name: String, by: u64) -> Result<u64, Full>;
    /// Changed.
    #[event]
    fn count_changed(&self, name: String, to: u64);
    /// Looks.
    #[op(repeatable)]
    async fn look(&self) -> Result<u64, Full> {
        Err(Full)
    }
    /// Notes.
    #[op(oneway)]
    fn note(&self, text: String);
    /// All of them changed.
    #[event]
    fn all_changed(&self);
}";

fn arguments(text: &str) -> Result<Arguments, String> {
    syn::parse_str(text).map_err(|error| error.to_string())
}

fn read_with(words: &str, text: &str) -> Result<Contract, String> {
    let item = syn::parse_str(text).unwrap();
    Contract::read(arguments(words)?, item).map_err(|error| error.to_string())
}

fn read(text: &str) -> Result<Contract, String> {
    read_with(r#"name = "counts", version = 1"#, text)
}

fn counts() -> Contract {
    read(COUNTS).unwrap()
}

/// Spaces between tokens depend on how these were made.
fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Where `all` has these tokens first.
#[track_caller]
fn has(all: &TokenStream, part: &str) -> usize {
    let all = without_spaces(&all.to_string());
    all.find(&without_spaces(part)).unwrap_or_else(|| panic!("`{part}` is not in:\n{all}"))
}

/// What generated items are called, but for implementations.
fn named(tokens: TokenStream) -> Vec<String> {
    let name = |item| match item {
        Item::Const(item) => Some(item.ident),
        Item::Struct(item) => Some(item.ident),
        Item::Enum(item) => Some(item.ident),
        Item::Trait(item) => Some(item.ident),
        Item::Fn(item) => Some(item.sig.ident),
        _ => None,
    };
    let file: syn::File = syn::parse2(tokens).unwrap();
    file.items.into_iter().filter_map(name).map(|name| name.to_string()).collect()
}

#[test]
fn name_and_version_are_constants() {
    let constants = counts().constants();
    assert_eq!(named(constants.clone()), ["NAME", "VERSION", "HASH"]);
    has(&constants, r#"pub const NAME: &str = "counts";"#);
    has(&constants, "pub const VERSION: u32 = 1;");
}

#[test]
fn operations_and_events_are_numbered_apart() {
    let contract = counts();
    let numbers = |methods: Vec<&crate::model::Method>| -> Vec<_> {
        methods.iter().map(|method| (method.name.to_string(), method.number)).collect()
    };
    let of = |name: &str, number| (name.to_owned(), number);
    assert_eq!(numbers(contract.operations().collect()), [of("add", 1), of("look", 2), of("note", 3)]);
    assert_eq!(numbers(contract.events().collect()), [of("count_changed", 1), of("all_changed", 2)]);
}

#[test]
fn a_client_calls_sends_and_takes_events() {
    let client = client::generate(&counts());
    assert_eq!(named(client.clone()), ["OpenCountsClient", "OpenCountsEvent"]);
    has(
        &client,
        r#"#[doc = " Adds."]
        pub fn add(&self, name: String, by: u64) -> ::channel::Call<u64, Full> {
            self.channel.call(1u16, false, &(&name, &by,))
        }"#,
    );
    has(&client, "self.channel.call(2u16, true, &())");
    has(
        &client,
        "pub fn note(&self, text: String) -> ::core::result::Result<(), ::channel::SendError> {
            self.channel.send(3u16, &(&text,))
        }",
    );
    has(&client, "::channel::ClientEvent::Event(1u16, body) => ::channel::decode::<(String, u64,)>(&body)");
    has(&client, ".ok().map(|(name, to,)| OpenCountsEvent::CountChanged { name, to, })");
    has(&client, "::channel::ClientEvent::Event(2u16, body) => ::channel::decode::<()>(&body)");
    has(&client, r#"#[doc = " Changed."] CountChanged { name: String, to: u64 },"#);
    has(&client, "AllChanged {},");
}

#[test]
fn a_server_answers_and_sends_events() {
    let server = server::generate(&counts());
    let names = ["OpenCountsServer", "OpenCountsDispatch", "serve_open_counts", "OpenCountsEvents"];
    assert_eq!(named(server.clone()), names);
    let file: syn::File = syn::parse2(server.clone()).unwrap();
    let methods = file.items.iter().find_map(|item| match item {
        Item::Trait(item) => Some(&item.items),
        _ => None,
    });
    let methods = methods.unwrap().iter().filter_map(|item| match item {
        TraitItem::Fn(method) => Some((method.sig.ident.to_string(), method.default.is_some())),
        _ => None,
    });
    let of = |name: &str, has_answer| (name.to_owned(), has_answer);
    let own = [of("add", false), of("look", true), of("note", false)];
    let all = own.into_iter().chain([of("peer_closed", true), of("peer_restarted", true)]);
    assert_eq!(methods.collect::<Vec<_>>(), all.collect::<Vec<_>>());
    let future = "impl ::core::future::Future<Output = Result<u64, Full>>";
    has(&server, &format!("fn add(&self, peer: &::channel::Peer, name: String, by: u64) -> {future};"));
    has(&server, &format!("fn look(&self, peer: &::channel::Peer,) -> {future} {{ async move {{ Err(Full) }} }}"));
    has(&server, "fn note(&self, peer: &::channel::Peer, text: String);");
    has(&server, "let (name, by,): (String, u64,) = ::channel::decode(body)?;");
    has(&server, "let result = server.look(&peer,).await;");
    has(&server, "let (text,): (String,) = ::channel::decode(body)?;");
    has(&server, "note(peer, text,);");
    has(&server, "self.peer.event(1u16, &(&name, &to,))");
    has(&server, "self.peer.event(2u16, &())");
    let places = ["fn request", "1u16 =>", "2u16 =>", "fn one_way", "3u16 =>"].map(|part| has(&server, part));
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn the_hash_is_of_name_version_and_signatures_and_of_nothing_else() {
    let hash = |words: &str, text: &str| {
        let file: syn::File = syn::parse2(read_with(words, text).unwrap().constants()).unwrap();
        let Some(Item::Const(hash)) = file.items.last() else { panic!("the hash is the last") };
        hash.expr.to_token_stream().to_string()
    };
    let words = r#"name = "counts", version = 1"#;
    // FNV-1a of `counts 1`, as others compute it.
    assert_eq!(hash(words, "/// Counts.\ntrait Counts {}"), "3590663310526542922u64");
    let one = hash(words, COUNTS);
    let same = [("/// Adds.", "/// Adds, and tells."), ("by: u64", "by  :  u64"), ("pub trait", "trait")];
    for (old, new) in same {
        assert_eq!(hash(words, &COUNTS.replace(old, new)), one, "{new}");
    }
    assert_eq!(hash(words, &COUNTS.replace("Err(Full)", "Ok(0)")), one, "a server's own affair");
    let others = [
        ("by: u64", "by: u32"),
        ("by: u64", "to: u64"),
        ("fn add", "fn put"),
        ("Result<u64, Full>", "Result<u64, Empty>"),
        ("#[op]", "#[op(repeatable)]"),
        ("#[event]\n    fn all", "#[op(oneway)]\n    fn all"),
    ];
    for (old, new) in others {
        assert!(COUNTS.contains(old), "{old}");
        assert_ne!(hash(words, &COUNTS.replace(old, new)), one, "{new}");
    }
    for words in [r#"name = "count", version = 1"#, r#"name = "counts", version = 2"#] {
        assert_ne!(hash(words, COUNTS), one, "{words}");
    }
}

#[test]
fn arguments_are_a_name_and_a_version() {
    assert!(arguments(r#"name = "counts", version = 1,"#).is_ok());
    for (words, why) in [
        (r#"title = "counts", version = 1"#, "expected `name = ...`"),
        (r#"name = "counts", hash = 1"#, "expected `version = ...`"),
    ] {
        assert_eq!(arguments(words).err().as_deref(), Some(why));
    }
    assert!(arguments(r#"name = "counts""#).is_err() && arguments("name = counts, version = 1").is_err());
}

/// What is said of a contract with this in it, which otherwise could be one.
#[track_caller]
fn refused(members: &str, why: &str) {
    let said = read(&format!("/// Counts.\npub trait Counts {{ {members} }}")).err();
    assert_eq!(said.as_deref(), Some(why), "{members}");
}

#[test]
fn a_contract_without_documentation_or_with_parameters_is_refused() {
    let why = "a contract states purpose, order, limits and rights in its documentation";
    assert_eq!(read("trait Counts {}").err().as_deref(), Some(why));
    let why = "a contract has no type parameters and no supertraits";
    for head in ["Counts<T>", "Counts: Clone"] {
        assert_eq!(read(&format!("/// Counts.\ntrait {head} {{}}")).err().as_deref(), Some(why), "{head}");
    }
    refused("const MAX: u64;", "a contract consists of operations and events only");
    refused("#[event] fn changed(&self);", "an operation states its errors in its documentation");
}

#[test]
fn a_method_is_marked_once_as_what_it_is() {
    let marks = ["", "#[op] #[op]", "#[op] #[event]"];
    for mark in marks {
        let why = "mark it #[op], #[op(repeatable)], #[op(oneway)] or #[event]";
        refused(&format!("/// Adds.\n{mark} async fn add(&self) -> Result<(), ()>;"), why);
    }
    for mark in ["#[inline]", "#[event(oneway)]", "#[inline(always)]", "#[op = \"oneway\"]"] {
        let why = "expected #[op], #[op(repeatable)], #[op(oneway)] or #[event]";
        refused(&format!("/// Adds.\n{mark} async fn add(&self) -> Result<(), ()>;"), why);
    }
    let why = "expected `repeatable` or `oneway`";
    refused("/// Adds.\n#[op(twoway)] async fn add(&self) -> Result<(), ()>;", why);
}

#[test]
fn a_signature_is_that_of_its_kind() {
    let why = "an #[op] is `async fn`, a oneway #[op] or #[event] is `fn`";
    refused("/// Adds.\n#[op] fn add(&self) -> Result<(), ()>;", why);
    refused("/// Adds.\n#[op(oneway)] async fn add(&self);", why);
    refused("/// Adds.\n#[event] async fn added(&self);", why);
    for receiver in ["", "self", "&mut self", "by: u64"] {
        refused(&format!("/// Adds.\n#[event] fn added({receiver});"), "the first parameter is `&self`");
    }
    for output in ["", "-> u64", "-> (Result<u64, ()>)", "-> Option<u64>", "-> Result<u64>", "-> Result<u64, (), ()>"] {
        refused(&format!("/// Adds.\n#[op] async fn add(&self) {output};"), "an #[op] returns `Result<T, E>`");
    }
    for mark in ["op(oneway)", "event"] {
        let why = "a oneway #[op] or #[event] returns nothing";
        refused(&format!("/// Adds.\n#[{mark}] fn add(&self) -> Result<(), ()>;"), why);
        refused(
            &format!("/// Adds.\n#[{mark}] fn add(&self) {{}}"),
            "only an #[op] with a reply has an answer of its own",
        );
    }
}

#[test]
fn arguments_of_a_method_are_owned_and_at_most_twelve() {
    for argument in ["name: &str", "_: u64", "(a, b): (u64, u64)"] {
        refused(&format!("/// Adds.\n#[event] fn added(&self, {argument});"), "an argument is `name: OwnedType`");
    }
    let with = |count: u32| {
        let arguments: String = (0..count).map(|number| format!(", a{number}: u64")).collect();
        format!("/// Adds.\n#[event] fn added(&self{arguments});")
    };
    assert!(read(&format!("/// Counts.\ntrait Counts {{ {} }}", with(12))).is_ok());
    refused(&with(13), "more than 12 arguments: make a type of them");
}
