//! Names of the binding: media types, paths, features and exchange patterns.

/// Media type of a frame (1.3).
pub const MEDIA_TYPE: &str = "application/amp+json";
/// Media type of a stream of frames.
pub const NDJSON_MEDIA_TYPE: &str = "application/x-ndjson";
/// Media type of a frame with attachments.
pub const MULTIPART_RELATED: &str = "multipart/related";
/// Accepted as well, as browsers and many tools send it.
pub const MULTIPART_FORM_DATA: &str = "multipart/form-data";
pub const FRAME_PATH: &str = "/mesh";
pub const STREAM_PATH: &str = "/mesh/stream";
/// Exchange pattern of `POST /mesh`.
pub const REQUEST_RESPONSE: &str = "urn:longshore:mesh:mep:request-response";
/// Exchange pattern of `POST /mesh/stream`.
pub const EVENT_STREAM: &str = "urn:longshore:mesh:mep:stream";
pub const ATTACHMENTS_FEATURE: &str = "urn:longshore:mesh:feature:attachments";
/// Features of the binding itself.
pub const BINDING_FEATURES: [&str; 3] = [REQUEST_RESPONSE, EVENT_STREAM, ATTACHMENTS_FEATURE];
