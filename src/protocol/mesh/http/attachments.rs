//! Attachments, and the header block that lists them in the frame, so that a signature over the frame covers them.
//!
//! The block is `attachments: {"parts": [{"cid", "mediaType", "size", "sha256"}]}`. Listed attachments must be present as listed, and no
//! others.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::super::canonical::sha256_hex;
use super::super::fault::Fault;
use super::super::frame::Frame;
use super::status::ATTACHMENT;

/// Header block that lists the attachments.
pub const ATTACHMENTS_BLOCK: &str = "attachments";
pub const MAX_ATTACHMENTS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Content id: the name in the frame.
    pub cid: String,
    pub media_type: String,
    pub data: Bytes,
}

impl Attachment {
    pub fn sha256(&self) -> String {
        sha256_hex(&self.data)
    }

    fn to_block_entry(&self) -> Value {
        json!({"cid": self.cid, "mediaType": self.media_type, "size": self.data.len(), "sha256": self.sha256()})
    }
}

pub(super) fn is_valid_cid(cid: &str) -> bool {
    (1..=255).contains(&cid.len()) && cid.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"\\".contains(&byte))
}

/// Builds the block that lists attachments. It targets every node and is forwarded by all.
pub fn attachments_block(attachments: &[Attachment]) -> Map<String, Value> {
    let mut block = Map::new();
    block.insert("role".to_owned(), json!("next"));
    block.insert("relay".to_owned(), json!(true));
    block.insert("parts".to_owned(), attachments.iter().map(Attachment::to_block_entry).collect());
    block
}

fn mismatch(problem: impl Into<String>) -> Box<Fault> {
    Fault::sender(ATTACHMENT, problem).at_pointer("/frame/Header/attachments")
}

/// Checks attachments against the frame's list.
pub fn check_attachments(frame: &Frame, attachments: &[Attachment]) -> Result<(), Box<Fault>> {
    let content = frame.header.block(ATTACHMENTS_BLOCK).map(|block| block.content().clone());
    let entries: &[Value] = match content.as_ref().map(|content| content.get("parts")) {
        None => &[],
        Some(Some(Value::Array(list))) if list.len() <= MAX_ATTACHMENTS => list,
        Some(_) => {
            let problem = format!("`attachments` must have `parts`, a list of at most {MAX_ATTACHMENTS}");
            return Err(mismatch(problem));
        }
    };
    let mut cids = BTreeSet::new();
    for entry in entries {
        let cid = entry.get("cid").and_then(Value::as_str).filter(|cid| is_valid_cid(cid));
        let cid = cid.ok_or_else(|| mismatch("an entry of `attachments` has no valid `cid`"))?;
        if !cids.insert(cid) {
            return Err(mismatch(format!("the attachment `{cid}` is listed twice")));
        }
        let attachment = attachments.iter().find(|attachment| attachment.cid == cid);
        let attachment = attachment.ok_or_else(|| mismatch(format!("the attachment `{cid}` is listed but missing")))?;
        let actual = attachment.to_block_entry();
        if let Some(key) = ["size", "mediaType", "sha256"].into_iter().find(|key| entry.get(key) != actual.get(key)) {
            return Err(mismatch(format!("the `{key}` of the attachment `{cid}` differs from the listed one")));
        }
    }
    match attachments.iter().find(|attachment| !cids.contains(attachment.cid.as_str())) {
        Some(attachment) => Err(mismatch(format!("the attachment `{}` is not listed", attachment.cid))),
        None => Ok(()),
    }
}
