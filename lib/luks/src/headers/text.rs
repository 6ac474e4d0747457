//! The JSON of a header, field by field as it stands there. What the fields may say is checked in
//! `metadata`; the same forms are written when a volume is formatted.
//!
//! Fields that are not known here take no memory: they are passed over as they are read.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// The whole. Names of the parts are numbers.
#[derive(Deserialize, Serialize)]
pub(crate) struct Text {
    pub keyslots: BTreeMap<String, KeySlot>,
    #[serde(skip_deserializing)]
    pub tokens: BTreeMap<String, ()>,
    pub segments: BTreeMap<String, Segment>,
    pub digests: BTreeMap<String, Digest>,
    pub config: Config,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct KeySlot {
    #[serde(rename = "type")]
    pub kind: String,
    pub key_size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u64>,
    pub af: Option<Splitter>,
    pub area: Option<Area>,
    pub kdf: Option<Kdf>,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Splitter {
    #[serde(rename = "type")]
    pub kind: String,
    pub stripes: u64,
    pub hash: String,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Area {
    #[serde(rename = "type")]
    pub kind: String,
    pub offset: String,
    pub size: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_size: Option<u64>,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Kdf {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    pub salt: String,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Segment {
    #[serde(rename = "type")]
    pub kind: String,
    pub offset: String,
    pub size: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iv_tweak: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sector_size: Option<u64>,
    #[serde(default, skip_serializing)]
    pub integrity: Option<IgnoredAny>,
    #[serde(default, skip_serializing)]
    pub flags: Option<IgnoredAny>,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Digest {
    #[serde(rename = "type")]
    pub kind: String,
    pub keyslots: Vec<String>,
    pub segments: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Config {
    pub json_size: String,
    pub keyslots_size: String,
    #[serde(default, skip_serializing)]
    pub flags: Vec<String>,
    #[serde(default, skip_serializing)]
    pub requirements: Option<Requirements>,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Requirements {
    #[serde(default)]
    pub mandatory: Vec<String>,
}
