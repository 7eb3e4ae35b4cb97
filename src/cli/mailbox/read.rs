//! `longshore mailbox read`.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::args::MailboxReadArgs;
use super::place::Place;
use crate::cli::error::{Kind, Shown};
use crate::cli::here::Here;
use crate::cli::{Outcome, remark, say};
use crate::protocol::mailbox::machine::Letter;
use crate::protocol::mailbox::reader::{Batch, Desk};
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::wait::{Step, Waiting, Wanted};

/// How the shown messages say that they can be answered.
const ANSWER: &str = "longshore mailbox send";

/// Carries it out.
pub(super) async fn read(args: &MailboxReadArgs, here: &Here) -> Outcome {
    let place = Place::of(&args.place, here).await?;
    // Who waits may be the first of two; who only looks has mistyped the folder.
    if !args.wait {
        place.open()?;
    }
    let json = args.place.json;
    if args.all || !args.messages.is_empty() {
        // Whoever only looks may look over anybody's shoulder.
        let desk = place.desk(&args.who, false)?;
        if !args.all {
            return these(args, &desk);
        }
        print(&desk.again(Timestamp::now())?, json)?;
        return Ok(0);
    }
    let desk = place.own_desk(&args.who, false)?;
    if args.wait {
        return wait(args, &place, &desk);
    }
    let batch = desk.collect(Timestamp::now())?;
    if batch.letters.is_empty() {
        remark("no new messages");
    }
    print_batch(&batch, json)?;
    batch.keep()?;
    Ok(0)
}

fn these(args: &MailboxReadArgs, desk: &Desk) -> Outcome {
    let mut problems = Vec::new();
    for reference in &args.messages {
        match desk.find(reference)? {
            Ok(message) => print(&[Letter { last: message.seq, message, late: false }], args.place.json)?,
            Err(why) => problems.push(Shown::new(Kind::Input, show::line(&why))),
        }
    }
    Shown::all(problems)?;
    Ok(0)
}

fn wait(args: &MailboxReadArgs, place: &Place, desk: &Desk) -> Outcome {
    let wanted = Wanted { from: args.from.clone(), re: args.re.clone() };
    let end = args.timeout.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds.into())));
    let mut waiting = Waiting::new(desk, wanted, end);
    loop {
        match waiting.next(desk)? {
            Step::Batch(batch) => {
                print_batch(&batch, args.place.json)?;
                waiting.keep(*batch)?;
            }
            // Whoever wrote since on the host, and is in no roster, is nobody to wait for.
            Step::Idle if place.is_over() => {
                remark("the swarm is over: nobody in it writes any more");
                return Ok(Kind::Unsuccessful.exit_code());
            }
            Step::Idle => {}
            Step::Came => return Ok(0),
            Step::Gone(why) => {
                remark(&why);
                return Ok(Kind::Unsuccessful.exit_code());
            }
            Step::TimeOver => {
                remark(&format!("nothing came within {} s", args.timeout.unwrap_or_default()));
                return Ok(Kind::Unsuccessful.exit_code());
            }
        }
    }
}

fn print_batch(batch: &Batch, json: bool) -> Result<(), Shown> {
    for warning in &batch.warnings {
        remark(&show::warning(warning));
    }
    print(&batch.letters, json)
}

fn print(letters: &[Letter], json: bool) -> Result<(), Shown> {
    for letter in letters {
        say(&if json { format!("{}\n", show::letter_json(letter)) } else { show::letter(letter, ANSWER) + "\n" })?;
    }
    Ok(())
}
