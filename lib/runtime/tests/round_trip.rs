//! Whatever a client sends arrives as it was, and so does the answer: values of every kind that
//! contracts use, at random, through the stubs that the compiler made and a channel (Barrelfish,
//! section 4.6).
#![allow(missing_docs)]

extern crate alloc;

use std::cell::RefCell;
use std::rc::Rc;

use channel::{Layout, loopback};
use contract::contract;
use proptest::prelude::*;
use runtime::Peer;
use serde::{Deserialize, Serialize};

const LAYOUT: Layout = Layout { ring_slots: 64, bulk_bytes: 0 };
/// Longest list, in elements: with the rest less than the longest message
/// ([`channel::BODY_BYTES`]).
const LENGTH_MAX: usize = channel::BODY_BYTES / 4;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    Point,
    Line(i64, u8),
    Area { name: String, corners: Vec<(u32, i16)>, parent: Option<Box<Shape>> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    Never,
    Because { code: i32, text: String },
}

/// Gives back what it gets.
#[contract(name = "mirror", version = 1)]
pub trait Mirror {
    /// All of it, the other way round.
    #[op]
    async fn reflect(
        &self,
        shape: Shape,
        bytes: Vec<u8>,
        words: [u64; 3],
        flag: bool,
    ) -> Result<(bool, [u64; 3], Vec<u8>, Shape), Refusal>;
    /// Always refuses, with the refusal that it is given.
    #[op]
    async fn refuse(&self, refusal: Refusal) -> Result<(), Refusal>;
    /// No answer.
    #[op(oneway)]
    fn note(&self, shape: Shape, text: String);
}

#[derive(Default)]
struct Glass(RefCell<Vec<(Shape, String)>>);

impl MirrorServer for Glass {
    async fn reflect(
        &self,
        _: &Peer,
        shape: Shape,
        bytes: Vec<u8>,
        words: [u64; 3],
        flag: bool,
    ) -> Result<(bool, [u64; 3], Vec<u8>, Shape), Refusal> {
        Ok((flag, words, bytes, shape))
    }

    async fn refuse(&self, _: &Peer, refusal: Refusal) -> Result<(), Refusal> {
        Err(refusal)
    }

    fn note(&self, _: &Peer, shape: Shape, text: String) {
        self.0.borrow_mut().push((shape, text));
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![Just(Shape::Point), (any::<i64>(), any::<u8>()).prop_map(|(a, b)| Shape::Line(a, b))];
    leaf.prop_recursive(3, 4, 1, |inner| {
        (".{0,8}", prop::collection::vec(any::<(u32, i16)>(), 0..6), prop::option::of(inner.prop_map(Box::new)))
            .prop_map(|(name, corners, parent)| Shape::Area { name, corners, parent })
    })
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        Just(Refusal::Never),
        (any::<i32>(), ".{0,40}").prop_map(|(code, text)| Refusal::Because { code, text })
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_is_sent_arrives(
        shape in shape(),
        bytes in prop::collection::vec(any::<u8>(), 0..LENGTH_MAX),
        words in any::<[u64; 3]>(),
        flag in any::<bool>(),
        refusal in refusal(),
        text in ".{0,60}",
    ) {
        runtime::testing::run(async move {
            let (client, server) = loopback(LAYOUT);
            let client = MirrorClient::new(client);
            let glass = Rc::new(Glass::default());
            runtime::spawn(serve_mirror(glass.clone(), server));
            let sent = (flag, words, bytes.clone(), shape.clone());
            assert_eq!(client.reflect(shape.clone(), bytes, words, flag).await, Ok(sent));
            assert_eq!(client.refuse(refusal.clone()).await, Err(channel::CallError::Server(refusal)));
            client.note(shape.clone(), text.clone()).expect("the ring is empty");
            // An answer comes after what was sent before its question.
            let _ = client.refuse(Refusal::Never).await;
            assert_eq!(glass.0.borrow().as_slice(), [(shape, text)]);
        });
    }
}
