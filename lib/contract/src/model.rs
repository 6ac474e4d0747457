//! What a contract says, read from the trait and checked.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    Attribute, Block, Error, FnArg, Ident, ItemTrait, LitInt, LitStr, Meta, Pat, Result, ReturnType, Token, TraitItem,
    TraitItemFn, Type, Visibility,
};

/// `name = "..", version = N`.
pub struct Arguments {
    name: LitStr,
    version: LitInt,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Arguments> {
        let key: Ident = input.parse()?;
        expect(&key, "name")?;
        input.parse::<Token![=]>()?;
        let name = input.parse()?;
        input.parse::<Token![,]>()?;
        let key: Ident = input.parse()?;
        expect(&key, "version")?;
        input.parse::<Token![=]>()?;
        let version = input.parse()?;
        input.parse::<Option<Token![,]>>()?;
        Ok(Arguments { name, version })
    }
}

fn expect(key: &Ident, wanted: &str) -> Result<()> {
    if key == wanted { Ok(()) } else { Err(Error::new(key.span(), format!("expected `{wanted} = ...`"))) }
}

/// What kind of method.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// With a reply.
    Call { repeatable: bool },
    /// Client to server.
    OneWay,
    /// Server to client.
    Event,
}

/// One operation or event.
pub struct Method {
    pub kind: Kind,
    pub number: u16,
    pub name: Ident,
    pub docs: Vec<Attribute>,
    pub arguments: Vec<(Ident, Type)>,
    /// The whole `Result<T, E>` of a call.
    pub result: Option<(Type, Type, Type)>,
    /// What a server answers that says nothing else.
    pub default: Option<Block>,
}

impl Method {
    /// `a: A, b: B`.
    pub fn parameters(&self) -> TokenStream {
        let each = self.arguments.iter().map(|(name, kind)| quote!(#name: #kind));
        quote!(#(#each),*)
    }

    /// `a, b,`.
    pub fn names(&self) -> TokenStream {
        let each = self.arguments.iter().map(|(name, _)| name);
        quote!(#(#each,)*)
    }

    /// `(A, B,)`, as sent.
    pub fn wire_type(&self) -> TokenStream {
        let each = self.arguments.iter().map(|(_, kind)| kind);
        quote!((#(#each,)*))
    }

    /// `(&a, &b,)`.
    pub fn wire_value(&self) -> TokenStream {
        let each = self.arguments.iter().map(|(name, _)| name);
        quote!((#(&#each,)*))
    }

    /// `FileOpened` for `file_opened`.
    pub fn variant(&self) -> Ident {
        format_ident!("{}", camel(&self.name.to_string()), span = self.name.span())
    }
}

/// The whole conversation.
pub struct Contract {
    pub visibility: Visibility,
    pub name: LitStr,
    pub version: LitInt,
    pub docs: Vec<Attribute>,
    /// The trait's name.
    pub title: Ident,
    pub methods: Vec<Method>,
    hash: u64,
}

impl Contract {
    /// Reads and checks.
    pub fn read(arguments: Arguments, item: ItemTrait) -> Result<Contract> {
        let docs = docs(
            &item.attrs,
            item.ident.span(),
            "a contract states purpose, order, limits and rights in its documentation",
        )?;
        if !item.generics.params.is_empty() || !item.supertraits.is_empty() {
            return Err(Error::new(item.ident.span(), "a contract has no type parameters and no supertraits"));
        }
        let (mut calls, mut events) = (0, 0);
        let mut methods = Vec::new();
        for member in &item.items {
            let TraitItem::Fn(function) = member else {
                return Err(Error::new(member.span(), "a contract consists of operations and events only"));
            };
            let kind = kind(function)?;
            let counter = if kind == Kind::Event { &mut events } else { &mut calls };
            *counter += 1;
            methods.push(method(function, kind, *counter)?);
        }
        let hash = hash(&arguments, &methods);
        let Arguments { name, version } = arguments;
        Ok(Contract { visibility: item.vis, name, version, docs, title: item.ident, methods, hash })
    }

    /// `FilesClient` for suffix `Client`.
    pub fn named(&self, suffix: &str) -> Ident {
        format_ident!("{}{}", self.title, suffix)
    }

    /// Methods of the client to server direction.
    pub fn operations(&self) -> impl Iterator<Item = &Method> {
        self.methods.iter().filter(|method| method.kind != Kind::Event)
    }

    /// Methods of the server to client direction.
    pub fn events(&self) -> impl Iterator<Item = &Method> {
        self.methods.iter().filter(|method| method.kind == Kind::Event)
    }

    /// `serve_files`.
    pub fn serve_name(&self) -> Ident {
        format_ident!("serve_{}", snake(&self.title.to_string()))
    }

    pub fn constants(&self) -> TokenStream {
        let Contract { visibility, name, version, hash, .. } = self;
        quote! {
            /// The contract's name, as system descriptions and start pages write it.
            #visibility const NAME: &str = #name;
            /// Raised with every change that is not only documentation.
            #visibility const VERSION: u32 = #version;
            /// Of name, version and all signatures; must be the same on both sides of a channel.
            #visibility const HASH: u64 = #hash;
        }
    }
}

fn docs(attributes: &[Attribute], span: proc_macro2::Span, lack: &str) -> Result<Vec<Attribute>> {
    let docs: Vec<Attribute> =
        attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
    if docs.is_empty() { Err(Error::new(span, lack)) } else { Ok(docs) }
}

fn kind(function: &TraitItemFn) -> Result<Kind> {
    let marks = function.attrs.iter().filter(|attribute| !attribute.path().is_ident("doc"));
    let [mark] = marks.collect::<Vec<_>>()[..] else {
        return Err(Error::new(
            function.sig.ident.span(),
            "mark it #[op], #[op(repeatable)], #[op(oneway)] or #[event]",
        ));
    };
    match &mark.meta {
        Meta::Path(path) if path.is_ident("op") => Ok(Kind::Call { repeatable: false }),
        Meta::Path(path) if path.is_ident("event") => Ok(Kind::Event),
        Meta::List(list) if list.path.is_ident("op") => {
            let option: Ident = list.parse_args()?;
            match option.to_string().as_str() {
                "repeatable" => Ok(Kind::Call { repeatable: true }),
                "oneway" => Ok(Kind::OneWay),
                _ => Err(Error::new(option.span(), "expected `repeatable` or `oneway`")),
            }
        }
        _ => Err(Error::new(mark.span(), "expected #[op], #[op(repeatable)], #[op(oneway)] or #[event]")),
    }
}

fn method(function: &TraitItemFn, kind: Kind, number: u16) -> Result<Method> {
    let signature = &function.sig;
    let span = signature.ident.span();
    let docs = docs(&function.attrs, span, "an operation states its errors in its documentation")?;
    let is_call = matches!(kind, Kind::Call { .. });
    if signature.asyncness.is_some() != is_call {
        return Err(Error::new(span, "an #[op] is `async fn`, a oneway #[op] or #[event] is `fn`"));
    }
    let mut inputs = signature.inputs.iter();
    if !matches!(inputs.next(), Some(FnArg::Receiver(receiver)) if receiver.reference.is_some() && receiver.mutability.is_none())
    {
        return Err(Error::new(span, "the first parameter is `&self`"));
    }
    let arguments = inputs.map(argument).collect::<Result<Vec<_>>>()?;
    if arguments.len() > 12 {
        return Err(Error::new(span, "more than 12 arguments: make a type of them"));
    }
    let result = match (&signature.output, is_call) {
        (ReturnType::Type(_, kind), true) => Some(result_parts(kind)?),
        (ReturnType::Default, false) => None,
        (_, true) => return Err(Error::new(span, "an #[op] returns `Result<T, E>`")),
        (_, false) => return Err(Error::new(span, "a oneway #[op] or #[event] returns nothing")),
    };
    let default = function.default.clone();
    if default.is_some() && !is_call {
        return Err(Error::new(span, "only an #[op] with a reply has an answer of its own"));
    }
    Ok(Method { kind, number, name: signature.ident.clone(), docs, arguments, result, default })
}

fn argument(input: &FnArg) -> Result<(Ident, Type)> {
    match input {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(name) if !matches!(&*typed.ty, Type::Reference(_)) => {
                Ok((name.ident.clone(), (*typed.ty).clone()))
            }
            _ => Err(Error::new(typed.span(), "an argument is `name: OwnedType`")),
        },
        FnArg::Receiver(receiver) => Err(Error::new(receiver.span(), "one `&self` is enough")),
    }
}

/// `Result<T, E>` as (whole, T, E).
fn result_parts(whole: &Type) -> Result<(Type, Type, Type)> {
    if let Type::Path(path) = whole
        && let Some(last) = path.path.segments.last()
        && last.ident == "Result"
        && let syn::PathArguments::AngleBracketed(arguments) = &last.arguments
        && let [syn::GenericArgument::Type(value), syn::GenericArgument::Type(error)] =
            &arguments.args.iter().collect::<Vec<_>>()[..]
    {
        return Ok((whole.clone(), (*value).clone(), (*error).clone()));
    }
    Err(Error::new(whole.span(), "an #[op] returns `Result<T, E>`"))
}

/// FNV-1a over name, version and signatures as tokens: spelling of types counts, documentation and
/// spacing do not.
fn hash(arguments: &Arguments, methods: &[Method]) -> u64 {
    let mut text = format!("{} {}", arguments.name.value(), arguments.version);
    for method in methods {
        let kind = match method.kind {
            Kind::Call { repeatable } => {
                if repeatable {
                    "repeatable"
                } else {
                    "op"
                }
            }
            Kind::OneWay => "oneway",
            Kind::Event => "event",
        };
        text += &format!(";{kind} {}", method.name);
        for (name, kind) in &method.arguments {
            text += &format!(",{name}:{}", kind.to_token_stream());
        }
        if let Some((whole, _, _)) = &method.result {
            text += &format!("->{}", whole.to_token_stream());
        }
    }
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn camel(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>()).unwrap_or_default()
    });
    words.collect()
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}
