//! Creates a sandbox's container, even if the engine carried out the same request of a dead orchestrator late. Called by
//! `session.rs`. Must not: remove a container that has run.

use crate::engine::{ContainerSpec, Engine, EngineError, EngineResourceKind, EngineResult, label};
use crate::ids::ContainerId;

/// Creates the container. One of the same name and labels that was never started is replaced.
pub(crate) async fn create_container(engine: &dyn Engine, spec: &ContainerSpec) -> EngineResult<ContainerId> {
    match engine.create(spec).await {
        Err(EngineError::Refused { status: 409, .. }) if remove_unused(engine, spec).await? => {
            engine.create(spec).await
        }
        other => other,
    }
}

/// Whether a container that was never started was found and removed.
async fn remove_unused(engine: &dyn Engine, spec: &ContainerSpec) -> EngineResult<bool> {
    let swarm = spec.labels.get(label::SWARM).map(String::as_str);
    for found in engine.find_resources(label::SWARM, swarm).await? {
        // A container also has its image's labels.
        let same = spec.labels.iter().all(|(key, value)| found.labels.get(key) == Some(value));
        if found.kind != EngineResourceKind::Container || found.name != spec.name || !same {
            continue;
        }
        let Ok(id) = found.id.parse::<ContainerId>() else { continue };
        if engine.inspect(&id).await?.is_some_and(|seen| seen.never_started) {
            engine.remove(&id).await?;
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fake::{self, FakeEngine};

    fn spec(attempt: &str) -> ContainerSpec {
        let labels = [(label::SWARM, "s"), (label::ROLE, "sandbox"), (label::ATTEMPT, attempt)];
        fake::container_spec("longshore-s-1", &labels)
    }

    #[tokio::test]
    async fn create_replaces_only_a_never_started_container() {
        let engine = FakeEngine::new(|_| async { 0 });
        let old = engine.create(&spec("1")).await.unwrap();
        let new = create_container(&engine, &spec("1")).await.unwrap();
        assert_ne!(old, new);
        assert_eq!(engine.containers(), ["longshore-s-1"]);
        let found = engine.find_resources(label::SWARM, Some("s")).await.unwrap();
        assert!(found[0].labels.len() > spec("1").labels.len(), "the image has labels too");

        assert!(create_container(&engine, &spec("2")).await.is_err(), "it is not the same");
        engine.start(&new).await.unwrap();
        assert!(create_container(&engine, &spec("1")).await.is_err(), "it may have done something");
        assert!(engine.inspect(&new).await.unwrap().is_some());
    }
}
