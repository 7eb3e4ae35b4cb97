//! The HTTP binding.
mod client;
mod handler;
mod lines;
mod memory;
mod multipart;
mod server;
mod station;
mod status;
mod stream;

pub use client::{Address, Client, ClientError, Manner, Reply};
pub use handler::Handler;
pub use lines::{Line, Lines};
pub use multipart::{Attachment, BLOCK as ATTACHMENTS, block as attachments_block};
pub use server::{Server, Terms};
pub use station::{Answer, Hops, Station};

/// The media type of a frame (1.3).
pub const MEDIA_TYPE: &str = "application/amp+json";
/// The media type of a stream of frames.
pub const NDJSON: &str = "application/x-ndjson";
/// The media type of a frame with attachments.
pub const RELATED: &str = "multipart/related";
/// The same as browsers' forms and many tools make it.
pub const FORM_DATA: &str = "multipart/form-data";
/// Where frames are posted to.
pub const FRAME_PATH: &str = "/mesh";
/// Where streams of them are.
pub const STREAM_PATH: &str = "/mesh/stream";
/// The features of the binding itself, by URI.
pub const FEATURES: [&str; 3] = [REQUEST_RESPONSE, EVENT_STREAM, ATTACHMENTS_FEATURE];
/// The exchange pattern of `POST /mesh`.
pub const REQUEST_RESPONSE: &str = "urn:longshore:mesh:mep:request-response";
/// The exchange pattern of `POST /mesh/stream`.
pub const EVENT_STREAM: &str = "urn:longshore:mesh:mep:stream";
/// Bytes that travel beside a frame.
pub const ATTACHMENTS_FEATURE: &str = "urn:longshore:mesh:feature:attachments";
