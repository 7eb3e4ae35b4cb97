//! How a salvage maps to the state of the work directory.

use super::*;

#[test]
fn salvage_result_maps_to_work_dir_status() {
    let tip: CommitId = "0".repeat(40).parse().expect("40 digits");
    let other: CommitId = "1".repeat(40).parse().expect("40 digits");
    let saved = |commit: Option<&CommitId>, left_out: &[&str]| {
        let left_out = left_out.iter().map(|path| (*path).to_owned()).collect();
        Ok(SalvagedWork { commit: commit.cloned(), left_out })
    };
    let fault = |kind| Err(EngineError::Depot { operation: "salvaging", kind, message: String::new() });
    let seen = |nothing_there, left_out, no_answer| WorkDirStatus {
        nothing_to_keep: nothing_there,
        has_left_out: left_out,
        timed_out: no_answer,
    };
    let table = [
        (saved(Some(&other), &[]), seen(false, false, false)),
        (saved(Some(&other), &["secret.txt"]), seen(false, true, false)),
        (saved(Some(&tip), &[]), seen(true, false, false)),
        (saved(Some(&tip), &["secret.txt"]), seen(false, true, false)),
        (saved(None, &["secret.txt"]), seen(false, true, false)),
        (saved(None, &[]), seen(true, false, false)),
        (fault(Some(DepotErrorKind::NotFound)), seen(true, false, false)),
        (fault(Some(DepotErrorKind::Failed)), seen(false, false, false)),
        (fault(None), seen(false, false, false)),
    ];
    for (saved, wanted) in table {
        assert_eq!(WorkDirStatus::from_salvage(&saved, Some(&tip)), wanted, "{saved:?}");
    }
}
