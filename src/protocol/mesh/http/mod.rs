//! The HTTP binding of the mesh: this text is its specification, as section 4 wants one.
//!
//! A node's bytes come from here and go out here; what a frame means is settled by [`process`](super::process::process), and no rule
//! of this binding overrides the processing model (3.1, 4). Used by `longshore mesh serve|send`. Must not: be needed by the shim.
//!
//! | file | what |
//! |---|---|
//! | `server.rs` | connections, who may ask, requests -> frames |
//! | `node_service.rs` | a node at its post: what it remembers, attachments, handler, next node |
//! | `stream.rs`, `line_decoder.rs` | frames in a stream, a line each |
//! | `multipart.rs` | attachments, and the block that lists them |
//! | `client.rs` | frames to the next node |
//! | `handler.rs`, `status.rs` | the program that answers; faults as statuses |
//!
//! # Feature support (4, first point)
//!
//! | feature | URI | how |
//! |---|---|---|
//! | request and response | [`REQUEST_RESPONSE`] | `POST /mesh` |
//! | a stream of frames | [`EVENT_STREAM`] | `POST /mesh/stream` |
//! | attachments | [`ATTACHMENTS_FEATURE`] | multipart, and the block `attachments` |
//! | those of the node's modules | `GET /mesh` lists them | header blocks, end to end; HTTP adds nothing to them |
//!
//! # Transport mapping (4; frame transfer and serialization, 4.2)
//!
//! - A frame is the content of a `POST`: UTF-8 JSON as `application/amp+json` (`application/json` is taken), whole, with no content
//!   encoding. Header, Body and MemoryGrams stay in it: nothing of a frame is moved to HTTP header fields, so nothing is lost on a
//!   hop that does not speak HTTP.
//! - `HTTP/1.1`, and `HTTP/2` by prior knowledge, on one port. A client's `Host` or `:authority` must be a name of this machine if the
//!   node listens on it alone.
//! - With attachments: `multipart/related` (`multipart/form-data` is taken). The frame comes first, or where `start` says; every other
//!   part has a `Content-ID`, or a form's `name`. The block `attachments: {"parts": [{"cid", "mediaType", "size", "sha256"}]}` lists
//!   them; what is listed must come, as it is listed, and nothing else. The nodes of the block's role check them (2.3): all of them
//!   where it is for `next`, as `mesh send` makes it. Every node relays and never renames them.
//! - A stream: `application/x-ndjson`, a frame a line in, an answer a line out, in their order. A frame is processed when its line is
//!   whole, never before, so a stream gives what single frames would (streaming semantics, 4.2). It has no attachments.
//! - `GET /mesh`: what the node is: `uri`, `place`, `roles`, `versions`, `features`, `modules`, `understands`.
//!
//! # Message exchange patterns (3.2, 4.2)
//!
//! | | request and response | stream |
//! |---|---|---|
//! | URI | [`REQUEST_RESPONSE`] | [`EVENT_STREAM`] |
//! | lifecycle | a frame; its answer, on the same exchange; intermediaries hold theirs open meanwhile | any number of such, one after the other |
//! | causal links | the answer's `relatesTo` is the frame's `messageId`, its `traceId` the same | the same, and the order of the lines |
//! | termination | the answer; a fault; or the connection's end, after which the sender knows nothing | each side ends its own half; a line that broke off is no frame |
//! | additional messages | an ultimate receiver with no handler acknowledges: `Body.acknowledgment` | the same |
//! | faults | a fault frame is the answer; one that is told is acknowledged or has an empty answer, never another fault. What breaks 5.4 is no fault, and is answered as malformed | a fault is a line, and the stream goes on |
//!
//! An answer goes back the way that the frame came and as it is, less the detail of a fault (5.4.5, rule 4).
//!
//! # Contract enforcement (4, third point)
//!
//! - Once or not at all, as long as the node lives: a frame that the node's modules call fresh is remembered before it is acted on, and
//!   refused when it comes again. One whose answer was a `Receiver` fault may come again (5.4.6, rule 4). Delivery itself is not
//!   repeated by this binding: a sender that had no answer decides.
//! - Order: within a stream. Not between exchanges.
//! - Sizes, depths and counts are the node's limits, checked before processing; a body over the limit is not read. Attachments have a
//!   limit of their own, whatever the frame leaves of its.
//! - 7.2, rule 3: a frame never says where a socket goes. `routing` chooses among the ways that the node's owner gave.
//!
//! # Failure handling (4, fourth point)
//!
//! | what | fault | status |
//! |---|---|---|
//! | a `Sender` fault | as it is | 400 |
//! | all others | as it is | 500 |
//! | no or another token | `Sender`, `AuthenticationFailed` | 401 |
//! | a name that is not this node's, a web page | `Sender`, `HostRefused` | 403 |
//! | another path or method | `Sender`, `NoResource` | 404 |
//! | a body that does not end in time | `Sender`, `TooSlow` | 408 |
//! | a body over the limit | `Sender`, `LimitExceeded` | 413 |
//! | another media type | `Sender`, `MediaType` | 415 |
//! | more at once than the node takes | `Receiver`, `Busy` | 503 |
//! | parts that cannot be told apart; that are not as listed | `Sender`, `Multipart`; `AttachedStreams` | 400 |
//! | the handler failed, or was late | `Receiver`, `HandlerFailed` | 500 |
//! | the next node is not there, or late; takes nothing; answers nonsense | `Receiver`, `NextHopUnreachable`; `NextHopRefused`; `NextHopAnswer`, with `node` (5.4.3) | 500 |
//! | no way to where the frame goes | `Receiver`, `NoRoute` | 500 |
//!
//! A connection that breaks while a frame is sent, or while its answer comes, tells the sender nothing: it may have been processed.
//!
//! # Implementation requirements (4, fifth point)
//!
//! `Content-Type` must be there and `Content-Encoding` must not be; redirects are not followed; the frame's `version` is the only
//! negotiation, and `VersionMismatch` with its `Upgrade` block the answer to a wrong one. A client must take an answer whose status it
//! does not know by the fault in it. A server must bound heads, bodies, lines, connections and the time of each.
//!
//! # State (4.2) and what features want of each other
//!
//! Outgoing and incoming buffers are one frame each, and sixteen answers of a stream. Feature state: the replay memory (sender and id,
//! until the window is over), keys and trust (given at the start, never changed). Attachments are checked after the modules, whose faults
//! come first as the processing model has them, and before anything is stored, run or sent on.
//!
//! # Security (7.3)
//!
//! - **What the transport does not do.** There is no TLS here: a node listens on loopback, or behind something that has TLS, and clients
//!   speak `https://`. A token says that somebody may talk to this node; it does not say who wrote a frame, and does not go on to the
//!   next node. Who wrote it is told by `signature` and `authentication` in the frame, which hold over all hops (7.2, rule 5). A node that
//!   leaves them out believes whoever reaches it; `--require-signature` is the way not to.
//! - **Replay.** Signed frames have a time and an id; they are refused out of their window, and remembered within it. Frames without are
//!   not told from their copies. The memory does not outlive the process: a restart forgets it, and the window bounds the harm.
//! - **Interactions.** `encryption` under TLS is double, and right: TLS ends at each hop. HTTP proxies may strip header fields; no
//!   field matters but the token. Intermediaries that change what was signed break the signature, and are told so at the end.
//! - **Ports.** 7117, which nothing else is known by, so that no middlebox means to understand it; any other by `--listen` (7.3.1).
//! - **Browsers** reach loopback: names that only resolve to it (DNS rebinding) and requests with an `Origin` are refused.
//! - **Handlers** get frames from others on their standard input, never in a command line; attachments are kept under their hashes.

//!
//! # Rules
//!
//! Every MUST and MUST NOT that is for bindings and their patterns:
//!
//! | rule | section | where | tests |
//! |---|---|---|---|
//! | `never-overrides` | 3.1; 3.2; 4 | `node_service.rs` | `section_3_1_and_3_2_and_4_the_binding_never_overrides_the_processing_model` |
//! | `mep-specification` | 3.2 | this text | `section_3_2_and_4_and_4_2_the_binding_specification_is_complete` |
//! | `binding-specification` | 4 | this text | `section_3_2_and_4_and_4_2_the_binding_specification_is_complete` |
//! | `declares-meps` | 4.2 | this text, `GET /mesh` | `section_3_2_and_4_and_4_2_the_binding_specification_is_complete`, `section_4_2_a_node_says_what_it_is` |
//! | `interdependencies`, `state-conventions` | 4.2 | this text | `section_3_2_and_4_and_4_2_the_binding_specification_is_complete` |
//! | `frame-transfer` | 4.2; 5, 6 | `server.rs`, `client.rs` | `section_2_7_2_and_4_2_and_5_the_rest_of_the_frame_is_relayed_as_it_came` |
//! | `serialization-formats` | 4.2 | `multipart.rs`, `server.rs` | `section_4_2_media_types` |
//! | `streaming-semantics` | 4.2 | `stream.rs` | `section_4_2_a_stream_gives_what_whole_frames_would` |
//! | `failure-handling` | 4 | `status.rs` | `section_4_failure_handling_every_fault_code_has_a_status`, `section_4_statuses_of_faults` |
//! | `fault-node` | 5.4.3 | `node_service.rs` | `section_2_6_and_5_4_3_must_understand_at_each_of_three_nodes` |

mod client;
mod handler;
mod line_decoder;
mod multipart;
mod server;
mod node_service;
mod status;
mod stream;

pub use client::{Client, ClientError, ClientOptions, ClientResponse, NodeAddress};
pub use handler::Handler;
pub use line_decoder::{LineDecoder, StreamLine};
pub use multipart::{ATTACHMENTS_BLOCK as ATTACHMENTS, Attachment, attachments_block};
pub use node_service::{NextHops, NodeResponse, NodeService};
pub use server::{Server, ServerOptions};

/// The media type of a frame (1.3).
pub const MEDIA_TYPE: &str = "application/amp+json";
/// The media type of a stream of frames.
pub const NDJSON_MEDIA_TYPE: &str = "application/x-ndjson";
/// The media type of a frame with attachments.
pub const MULTIPART_RELATED: &str = "multipart/related";
/// The same as browsers' forms and many tools make it.
pub const MULTIPART_FORM_DATA: &str = "multipart/form-data";
/// Where frames are posted to.
pub const FRAME_PATH: &str = "/mesh";
/// Where streams of them are.
pub const STREAM_PATH: &str = "/mesh/stream";
/// The features of the binding itself, by URI.
pub const BINDING_FEATURES: [&str; 3] = [REQUEST_RESPONSE, EVENT_STREAM, ATTACHMENTS_FEATURE];
/// The exchange pattern of `POST /mesh`.
pub const REQUEST_RESPONSE: &str = "urn:longshore:mesh:mep:request-response";
/// The exchange pattern of `POST /mesh/stream`.
pub const EVENT_STREAM: &str = "urn:longshore:mesh:mep:stream";
/// Bytes that travel beside a frame.
pub const ATTACHMENTS_FEATURE: &str = "urn:longshore:mesh:feature:attachments";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_3_2_and_4_and_4_2_the_binding_specification_is_complete() {
        let text = include_str!("mod.rs");
        let wanted = [
            // 4
            "# Feature support",
            "# Transport mapping",
            "# Contract enforcement",
            "# Failure handling",
            "# Implementation requirements",
            // 4.2
            "# Message exchange patterns",
            "# State (4.2) and what features want of each other",
            "streaming semantics",
            "`application/amp+json`",
            // 3.2
            "| URI |",
            "| lifecycle |",
            "| causal links |",
            "| termination |",
            "| additional messages |",
            "| faults |",
            // 7.3
            "# Security",
            "**Replay.**",
            "**Interactions.**",
            "**Ports.**",
        ];
        for wanted in wanted {
            assert!(text.lines().any(|line| line.starts_with("//!") && line.contains(wanted)), "{wanted}");
        }
        for feature in BINDING_FEATURES {
            assert!(super::super::role::is_iri(feature), "{feature}");
        }
    }

    #[test]
    fn section_1_2_every_rule_of_the_binding_has_a_test() {
        let sources = [
            include_str!("mod.rs"),
            include_str!("status.rs"),
            include_str!("../../../../tests/it/mesh/http.rs"),
            include_str!("../../../../tests/it/mesh/line.rs"),
            include_str!("../../../../tests/it/mesh/table.rs"),
        ];
        let rows = sources[0].lines().filter(|line| line.starts_with("//! | `") && line.contains("`section_"));
        let mut found = 0;
        for name in rows.flat_map(|row| row.split('`').filter(|word| word.starts_with("section_"))) {
            found += 1;
            let test = format!("    fn {name}()");
            let test = test.trim_start();
            assert!(sources.iter().any(|source| source.contains(test)), "{name}");
        }
        for row in sources[0].lines().filter(|line| line.starts_with("//! | `") && line.contains("`section_")) {
            let cells: Vec<&str> = row.split(" | ").skip(1).collect();
            let tests: Vec<&str> = row.split('`').filter(|word| word.starts_with("section_")).collect();
            let unnamed = super::super::conformance::sections_without_test(cells[1], &tests);
            assert!(unnamed.is_empty(), "{}: no test names {unnamed:?}", cells[0]);
        }
        assert!(found > 9, "{found}");
    }
}
