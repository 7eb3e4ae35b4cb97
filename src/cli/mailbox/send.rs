//! `longshore mailbox send`.

use std::io::Read;

use jiff::Timestamp;
use serde_json::json;

use super::args::MailboxSendArgs;
use super::place::Place;
use crate::cli::error::{Kind as Trouble, Shown};
use crate::cli::here::Here;
use crate::cli::{Outcome, remark, say};
use crate::protocol::mailbox::message::{Content, Draft, Kind, MAX_BODY, address};
use crate::protocol::mailbox::roster::Status;

/// Carries it out.
pub(super) async fn send(args: &MailboxSendArgs, here: &Here) -> Outcome {
    let me = &args.who.me;
    let Some((to, kind)) = address(me, args.to.clone(), args.kind, args.re.as_ref()) else {
        return Err(Shown::input("nobody is named whom it is for").hint("`--to ID`, or `--to '*'` for everybody"));
    };
    let place = Place::of(&args.place, here).await?;
    let content = Content {
        subject: args.subject.clone().unwrap_or_default(),
        body: body(args)?,
        context: args.context.clone(),
        expected_response: args.expect.clone(),
    };
    let draft = Draft { to, kind, re: args.re.clone(), priority: args.priority, ttl: args.ttl, content };
    let desk = place.own_desk(&args.who, kind != Kind::Done)?;
    if place.is_over() {
        remark("the swarm is over: nobody in it reads this any more");
    }
    for doubt in desk.doubts(&draft)? {
        remark(&doubt);
    }
    let sent = desk.send(&draft, Timestamp::now())?;
    if kind == Kind::Done && place.is_folder() {
        // Shutdown: "Agent updates ROSTER.md status to `done`".
        desk.mailbox().set_status(me, &Status::Done)?;
    }
    let references: Vec<String> = sent.iter().map(|message| message.reference().to_string()).collect();
    say(&if args.place.json { format!("{}\n", json!({ "sent": references })) } else { references.join("\n") + "\n" })?;
    Ok(0)
}

fn body(args: &MailboxSendArgs) -> Result<String, Shown> {
    let asked = args.text == ["-"];
    if !args.text.is_empty() && !asked {
        return Ok(args.text.join(" "));
    }
    if args.subject.is_some() && !asked {
        return Ok(String::new());
    }
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(4 * MAX_BODY as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| Shown::new(Trouble::Machinery, "cannot read standard input").caused_by(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
