-- Destinations on probation are looked at by themselves: so many broken ones that wait for their turn stand in nobody's way.
DROP INDEX {schema}.destination_wake;
CREATE INDEX destination_wake ON {schema}.destination (wake_at)
    WHERE wake_at IS NOT NULL AND paused_at IS NULL AND disabled_at IS NULL AND NOT probation;
CREATE INDEX destination_probe ON {schema}.destination (wake_at)
    WHERE wake_at IS NOT NULL AND paused_at IS NULL AND disabled_at IS NULL AND probation;
CREATE INDEX destination_on_probation ON {schema}.destination (id) WHERE probation;

-- Of each chain the few that may move: however many wait behind the first, an order is kept by looking at these.
CREATE INDEX delivery_chain_free ON {schema}.delivery (destination_id, shipment_no, version)
    WHERE ordered AND NOT blocked AND state IN ('waiting', 'queued', 'leased');
