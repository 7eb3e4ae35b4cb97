//! `longshore schema`: prints the JSON schema of what longshore reads or writes.

use super::args::SchemaName;
use super::error::CommandError;
use super::settings::Config;
use super::{CommandResult, ExitStatus, print_stdout};
use crate::plan::PlanDocument;
use crate::protocol::amp;
use crate::report::event::EventLine;
use crate::report::summary::Summary;
use crate::state::SwarmState;

pub(crate) fn schema(what: SchemaName) -> CommandResult {
    let schema = match what {
        SchemaName::Tasks => crate::tasks::schema(),
        SchemaName::State => schemars::schema_for!(SwarmState),
        SchemaName::Events => schemars::schema_for!(EventLine),
        SchemaName::Plan => schemars::schema_for!(PlanDocument),
        SchemaName::Config => schemars::schema_for!(Config),
        SchemaName::Report => schemars::schema_for!(Summary),
        SchemaName::Amp => handwritten_schema(amp::schema::message_schema()),
        SchemaName::AmpAck => handwritten_schema(amp::schema::ack_schema()),
        SchemaName::AmpVerdict => handwritten_schema(amp::schema::verdict_schema()),
    };
    let text = serde_json::to_string_pretty(&schema)
        .map_err(|error| CommandError::machinery("cannot write the schema").with_cause(&error))?;
    print_stdout(&format!("{text}\n"))?;
    Ok(ExitStatus::Success)
}

fn handwritten_schema(schema: serde_json::Value) -> schemars::Schema {
    schemars::Schema::try_from(schema).expect("the schema is an object")
}
