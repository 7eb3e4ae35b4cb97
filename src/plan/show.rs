//! A plan as people and programs read it.

use super::Plan;

/// For a terminal or a log; ends with a newline.
pub fn text(plan: &Plan) -> String {
    let _ = plan;
    todo!()
}

/// For programs; versioned.
pub fn json(plan: &Plan) -> serde_json::Value {
    let _ = plan;
    todo!()
}
