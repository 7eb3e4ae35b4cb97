//! The Agent Mailbox Protocol, version 1: how agents in different sandboxes, and people, talk through files in a folder.
//!
//! ```text
//! draft -> parts -> text -> agents/<me>/NNN.md -> watch -> store -> machine -> what is delivered, asked for again, given up
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`message`] | what can be said: messages, their headers' values, drafts |
//! | [`text`] | Markdown -> message, with the rule that is broken; message -> Markdown |
//! | [`parts`] | more than 10 KB: cut into messages, and joined |
//! | [`roster`] | who takes part |
//! | [`claim`] | who may write a shared file |
//! | [`store`] | the folder: outboxes, roster, shared files, claims |
//! | [`watch`] | waiting until something happens in it |
//! | [`machine`] | what a reader makes of it over time: order, gaps, parts, ttl, who is gone |
//! | [`pending`] | who waits for whose answer |
//! | [`reader`] | an agent at its mailbox: carries out what the machine wants |
//! | [`show`] | messages as text and as JSON, safe for a terminal |
//! | [`rules`] | the rules' names |
//! | `folder.rs` | files in a folder that is not to be trusted |
//! | `protocol.md` | what `PROTOCOL.md` says |
//!
//! Used by `shim/` (`acp-shim mail`), `cli/mailbox` and the swarm. Plain, blocking I/O; compiles into the shim alone.
//!
//! # Choices
//!
//! Where the spec is silent or says two things:
//!
//! | choice | why |
//! |---|---|
//! | timestamps without an offset are UTC | the spec's have none, and sandboxes know no other zone |
//! | a file whose `seq` is not the number in its name, or whose `from` is not its outbox, is no message | neither can be believed before the other |
//! | after `999.md` comes `1000.md`; `3.md` is read as 3, and `003.md` before it | "zero-padded 3 digits" says nothing of a fourth |
//! | an ERROR waits for an answer where it has an Expected Response | "Depends" |
//! | the four sections are read in any order, once each; other headings belong to the text they are in | the spec names no others |
//! | types and priorities are read in any case | agents write them by hand |
//! | a header that is not known is passed over | the fields of a later version |
//! | a part is a message with a number of its own; `part-cut: inside-line` says that it ends inside a line | "Split into multiple messages with `part: 1/3` field" |
//! | a message of up to 64 KB is read, though over 10 KB it should have been split | its sender did not know |
//! | a claim that was there before one's own counts as older, however it is dated | its owner may be writing already |
//! | a claim's own time counts as far as its file's time bears it out, within a minute | clocks, time zones and lies |
//! | statuses `crashed` and `left` beside `active` and `done` | the spec has no word for an agent that crashed |

mod folder;

pub mod message;
pub mod text;
pub mod parts;
pub mod roster;
pub mod claim;
pub mod store;
pub mod watch;
pub mod machine;
pub mod pending;
pub mod reader;
pub mod show;
pub mod rules;
