//! ACP messages as they stand on a line: names, types and required fields, with no value checked.
//!
//! [`decode`](super::decode) checks the values, [`encode`](super::encode) writes them. Unknown fields are ignored.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::deserialize::nullable;

/// The message whose payload is `P`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpWireMessage<'a, P> {
    #[serde(rename = "type")]
    pub kind: &'a str,
    #[serde(borrow)]
    pub timestamp: Cow<'a, str>,
    #[serde(borrow)]
    pub swarm_id: Cow<'a, str>,
    pub container_id: &'a str,
    pub payload: P,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireTaskRequest<'a> {
    pub task_file_path: &'a str,
    pub branch_name: &'a str,
    pub repo_url: &'a str,
    #[serde(borrow, default)]
    pub env_vars: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireProgress<'a> {
    pub story_id: &'a str,
    pub status: &'a str,
    #[serde(borrow)]
    pub output: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireCompletion<'a> {
    pub status: &'a str,
    #[serde(deserialize_with = "nullable")]
    pub pr_url: Option<&'a str>,
    #[serde(borrow)]
    pub errors: Vec<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireError<'a> {
    pub code: &'a str,
    #[serde(borrow)]
    pub message: Cow<'a, str>,
}
