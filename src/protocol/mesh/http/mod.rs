//! The HTTP binding of the mesh. This text is its specification, as section 4 requires one.
//!
//! Transports frames between nodes; what they mean is up to [`process`](super::process::process), and no rule of this binding overrides the
//! processing model (3.1, 4). Used by `longshore mesh serve` and `send`. The shim builds without it.
//!
//! | file | content |
//! |---|---|
//! | `server.rs`, `activity.rs` | connections and their limits |
//! | `routes.rs`, `state.rs` | requests to frames; access rules |
//! | `stream.rs`, `line_decoder.rs` | frames in a stream, one a line |
//! | `node_service.rs`, `handler.rs` | a node in operation, and the program that answers |
//! | `content_type.rs`, `multipart.rs`, `attachments.rs` | messages with attachments |
//! | `client.rs` | frames to the next node |
//! | `binding.rs`, `response.rs`, `status.rs` | names, responses, and statuses of faults |
//!
//! # Feature support (4, first point)
//!
//! | feature | URI | how |
//! |---|---|---|
//! | request and response | [`REQUEST_RESPONSE`](binding::REQUEST_RESPONSE) | `POST /mesh` |
//! | a stream of frames | [`EVENT_STREAM`](binding::EVENT_STREAM) | `POST /mesh/stream` |
//! | attachments | [`ATTACHMENTS_FEATURE`](binding::ATTACHMENTS_FEATURE) | multipart, and the block `attachments` |
//! | those of the node's modules | listed by `GET /mesh` | header blocks, end to end; HTTP adds nothing to them |
//!
//! # Transport mapping (4; frame transfer and serialization, 4.2)
//!
//! - A frame is the content of a `POST`: UTF-8 JSON as `application/amp+json` (`application/json` is accepted) without content encoding.
//!   Nothing of a frame is moved to HTTP header fields, so nothing is lost on a hop with another transport.
//! - `HTTP/1.1`, and `HTTP/2` by prior knowledge, on one port. If the node listens on loopback only, `Host` or `:authority` must be a
//!   loopback name.
//! - With attachments: `multipart/related` (`multipart/form-data` is accepted). The frame is the first part, or the one that `start` names;
//!   every other part has a `Content-ID`, or a form's `name`. The block `attachments: {"parts": [{"cid", "mediaType", "size", "sha256"}]}`
//!   lists them; attachments must match the list exactly. The nodes of the block's role check that (2.3): all nodes for the role `next`,
//!   which `mesh send` uses. Every node relays attachments under their names.
//! - A stream: `application/x-ndjson`, one frame a line in, one answer a line out, in order. A frame is processed when its line is complete,
//!   so a stream is equivalent to single frames (streaming semantics, 4.2). It has no attachments.
//! - `GET /mesh` describes the node: `uri`, `place`, `roles`, `versions`, `features`, `modules`, `understands`.
//!
//! # Message exchange patterns (3.2, 4.2)
//!
//! | | request and response | stream |
//! |---|---|---|
//! | URI | [`REQUEST_RESPONSE`](binding::REQUEST_RESPONSE) | [`EVENT_STREAM`](binding::EVENT_STREAM) |
//! | lifecycle | a frame, and its answer on the same exchange; intermediaries keep theirs open meanwhile | any number of such exchanges, one after the other |
//! | causal links | the answer's `relatesTo` is the frame's `messageId`, its `traceId` the same | the same, and the order of the lines |
//! | termination | the answer, a fault, or the end of the connection, after which the sender knows nothing | each side ends its own half; an incomplete line is not a frame |
//! | additional messages | an ultimate receiver without a handler acknowledges: `Body.acknowledgment` | the same |
//! | faults | a fault frame is the answer; a received fault is acknowledged or has an empty answer, never another fault. A `fault` that breaks 5.4 is answered as malformed | a fault is a line, and the stream continues |
//!
//! Intermediaries pass an answer back unchanged, except for the detail of a fault (5.4.5, rule 4).
//!
//! # Contract enforcement (4, third point)
//!
//! - At most once during the node's lifetime: a fresh frame is remembered before it is acted on, and its copies are refused. A frame that
//!   was answered with a `Receiver` fault may be resent (5.4.6, rule 4). The binding does not retry; a sender without an answer decides.
//! - Order is kept within a stream, not between exchanges.
//! - Sizes, depths and counts are the node's limits, checked before processing; a body over the limit is not read. Attachments have a limit
//!   of their own.
//! - 7.2, rule 3: a frame never determines an address; `routing` chooses among configured routes.
//!
//! # Failure handling (4, fourth point)
//!
//! | failure | fault | status |
//! |---|---|---|
//! | a `Sender` fault | unchanged | 400 |
//! | other faults | unchanged | 500 |
//! | missing or wrong token | `Sender`, `AuthenticationFailed` | 401 |
//! | foreign host name, or a web page | `Sender`, `HostRefused` | 403 |
//! | unknown path or method | `Sender`, `NoResource` | 404 |
//! | incomplete body after the timeout | `Sender`, `TooSlow` | 408 |
//! | body over the limit | `Sender`, `LimitExceeded` | 413 |
//! | another media type | `Sender`, `MediaType` | 415 |
//! | too many exchanges | `Receiver`, `Busy` | 503 |
//! | malformed multipart; attachments that differ from the list | `Sender`, `Multipart`; `Attachment` | 400 |
//! | handler failed or timed out | `Receiver`, `HandlerFailed` | 500 |
//! | attachment not stored | `Receiver`, `StoreFailed` | 500 |
//! | next node unreachable or late; refuses this node; sends no frame | `Receiver`, `NextHopUnreachable`; `NextHopRefused`; `NextHopAnswer`, with `node` (5.4.3) | 500 |
//! | no route to the destination | `Receiver`, `NoRoute` | 500 |
//!
//! A connection that breaks during a request or an answer tells the sender nothing: the frame may have been processed.
//!
//! # Implementation requirements (4, fifth point)
//!
//! `Content-Type` is required and `Content-Encoding` forbidden; redirects are not followed; the frame's `version` is the only negotiation,
//! and `VersionMismatch` with its `Upgrade` block the answer to a wrong one. A client must judge an answer with an unknown status by its
//! fault. A server must bound heads, bodies, lines, connections and the time for each.
//!
//! # State (4.2) and dependencies of features
//!
//! Outgoing and incoming buffers hold one frame each, and sixteen answers of a stream. Feature state: the replay memory (sender and id,
//! within the window), keys and trust (configured at the start). Attachments are checked after the modules, whose faults come first by the
//! processing model, and before anything is stored, run or forwarded.
//!
//! # Security (7.3)
//!
//! - **Transport.** There is no TLS: a node listens on loopback or behind a TLS proxy; clients support `https://`. A token permits access to
//!   this node; it neither authenticates the author of a frame nor travels to the next node. Authorship is established by `signature` and
//!   `authentication` in the frame, over all hops (7.2, rule 5). A node without them trusts everybody with access; use
//!   `--require-signature`.
//! - **Replay.** Signed frames have a time and an id: refused outside of the window, remembered within it. Copies of unsigned frames are not
//!   detected. A restart clears the replay memory; the window bounds the harm.
//! - **Interactions.** `encryption` under TLS is not redundant: TLS ends at each hop. HTTP proxies may strip header fields; only the token
//!   matters. Intermediaries that change signed content break the signature, which the receiver reports.
//! - **Ports.** 7117, which has no other known use, so that no middlebox interferes; any other by `--listen` (7.3.1).
//! - **Browsers** can reach loopback: host names that only resolve to it (DNS rebinding) and requests with an `Origin` are refused.
//! - **Handlers** receive frames on standard input, never in a command line; attachments are stored under their hashes.
//!
//! # Rules
//!
//! Every MUST and MUST NOT for bindings and their patterns:
//!
//! | rule | section | where | tests |
//! |---|---|---|---|
//! | `never-overrides` | 3.1; 3.2; 4 | `node_service.rs` | `section_3_1_and_3_2_and_4_the_binding_never_overrides_the_processing_model` |
//! | `mep-specification` | 3.2 | this text | `section_3_2_and_4_and_4_2_the_binding_specification_is_complete` |
//! | `binding-specification` | 4 | this text | `section_3_2_and_4_and_4_2_the_binding_specification_is_complete` |
//! | `declares-meps` | 4.2 | this text, `GET /mesh` | `section_3_2_and_4_and_4_2_the_binding_specification_is_complete`, `section_4_2_a_node_describes_itself` |
//! | `interdependencies`, `state-conventions` | 4.2 | this text | `section_3_2_and_4_and_4_2_the_binding_specification_is_complete` |
//! | `frame-transfer` | 4.2; 5, 6 | `routes.rs`, `client.rs` | `section_2_7_2_and_4_2_and_5_the_rest_of_the_frame_is_relayed_unchanged` |
//! | `serialization-formats` | 4.2 | `content_type.rs`, `routes.rs` | `section_4_2_media_types` |
//! | `streaming-semantics` | 4.2 | `stream.rs` | `section_4_2_a_stream_is_equivalent_to_single_frames` |
//! | `failure-handling` | 4 | `status.rs` | `section_4_failure_handling_every_fault_code_has_a_status`, `section_4_statuses_of_faults` |
//! | `fault-node` | 5.4.3 | `node_service.rs` | `section_2_6_and_5_4_3_must_understand_at_each_of_three_nodes` |

mod activity;
mod attachments;
pub mod binding;
mod client;
mod content_type;
mod handler;
mod line_decoder;
mod multipart;
mod node_service;
mod response;
mod routes;
mod server;
mod state;
mod status;
mod stream;
#[cfg(test)]
mod tests;

pub use attachments::{ATTACHMENTS_BLOCK, Attachment, attachments_block};
pub use client::{Client, ClientError, ClientOptions, NodeAddress};
pub use handler::Handler;
pub use line_decoder::{LineDecoder, StreamLine};
pub use node_service::{NextHops, NodeService};
pub use server::Server;
pub use state::ServerOptions;
