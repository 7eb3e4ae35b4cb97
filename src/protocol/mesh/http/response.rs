//! The response to a frame.

use bytes::Bytes;
use hyper::StatusCode;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameResponse {
    pub status: StatusCode,
    /// A frame; empty if the request was a fault, which is never answered with a fault.
    pub body: Bytes,
}
