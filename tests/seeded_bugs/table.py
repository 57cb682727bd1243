"""The table of seeded bugs: what is wrong, where, and what must notice it, by which invariant.

The numbers are stable. Those of the invariants are explained in docs/operations/simulation.md, and how to use the table
in docs/operations/seeded-bugs.md.
"""

from __future__ import annotations

from typing import Final

from tests.seeded_bugs import consumer_bugs, link_bugs, log_bugs, topic_bugs
from tests.seeded_bugs.bug import ByModel, BySimulation, BySuite, ProductBug
from tests.seeded_bugs.plans import with_kills_between_jobs, with_power_losses, with_power_losses_after_failed_syncs

_CURSORS = "tests/contract/log/cursors/test_cursors.py"
_COMMIT = "tests/contract/log/core/test_log_commit.py"
_TROUBLE = "tests/contract/log/core/test_log_trouble.py"
_REFUSALS = "tests/integration/ingress/test_federation_refusals.py"
_CONTIGUITY = "tests/integration/egress/peers/test_federation_contiguity.py"
_RETENTION = "tests/contract/log/retention/test_retention.py"

TABLE: Final = (
    ProductBug(
        1,
        "the fence is not checked when a step is settled",
        "eventd.log.cursors.steps.check_fence",
        link_bugs.settle_from_anywhere,
        (
            ByModel(("two instances: the fence is not checked",)),
            BySuite(f"{_CURSORS}::test_of_two_consumers_of_one_cursor_each_step_counts_once", ("T1",)),
        ),
    ),
    ProductBug(
        2,
        "a step by an old selection is settled",
        "eventd.log.cursors.steps.apply_step",
        link_bugs.settle_by_old_selections,
        (BySuite(f"{_CURSORS}::test_a_step_by_a_selection_that_is_not_in_force_any_more_is_refused_whole", ("V4",)),),
    ),
    ProductBug(
        3,
        "batches are settled as they are done, not in order",
        "eventd.egress.loop.consumer.Consumer",
        link_bugs.settle_out_of_order,
        (
            BySimulation(("V8", "V4"), known=3),
            ByModel(("link: batches are settled as they are answered",)),
        ),
    ),
    ProductBug(
        4,
        "a time-out counts as an answer",
        "eventd.egress.peers.push_v2.PushV2.push",
        link_bugs.move_cursor_without_receipt,
        (BySimulation(("V4", "V8"), known=6), ByModel(("link: a time-out counts as an answer",))),
    ),
    ProductBug(
        5,
        "a receipt is taken that does not account for every event",
        "eventd.egress.peers.push_v2.PushV2._refusals",
        link_bugs.take_false_sums,
        (BySimulation(("V9",), known=2, also=link_bugs.count_too_few),),
    ),
    ProductBug(
        6,
        "the signature of an answer is not verified",
        "federation.signing.verify_answer",
        link_bugs.trust_unsigned_answers,
        (BySimulation(("V4", "V9"), known=2, also=link_bugs.forge_receipts),),
    ),
    ProductBug(
        7,
        "a batch beyond the mark is stored",
        "federation.ranges.follow",
        link_bugs.take_batches_ahead,
        (
            BySimulation(("V6", "V8", "V4"), known=19),
            ByModel(("link: a batch beyond the mark is stored",)),
        ),
    ),
    ProductBug(
        8,
        "a repair moves the mark",
        "eventd.ingress.batch.StoreBatch",
        link_bugs.move_marks_with_repairs,
        (ByModel(("link: a repair moves the mark",)),),
    ),
    ProductBug(
        9,
        "the mark moves in a transaction of its own",
        "eventd.ingress.batch.StoreBatch",
        link_bugs.move_marks_before_batches,
        (ByModel(("link: the mark moves in a transaction of its own",)),),
    ),
    ProductBug(
        10,
        "the nonce of a batch is not stored with it",
        "eventd.ingress.batch.StoreBatch",
        link_bugs.keep_no_nonces,
        (
            BySuite(
                f"{_REFUSALS}::test_what_was_seen_before_has_no_effect_at_all_also_after_a_restart",
                ("V17",),
            ),
        ),
    ),
    ProductBug(
        11,
        "the receipt is not kept, so that a repeated batch counts anew",
        "eventd.store.rows.links.keep_receipt",
        link_bugs.forget_receipts,
        (BySimulation(("V9",), known=2),),
    ),
    ProductBug(
        12,
        "a unit is answered before its commit",
        "eventd.log.core.writer.Writer",
        log_bugs.acknowledge_before_commit,
        (BySimulation(("V3",), known=2), ByModel(("writer: a unit is answered before its commit",))),
    ),
    ProductBug(
        13,
        "durable commits are not flushed",
        "eventd.store.engine.engines",
        log_bugs.leave_out_syncs,
        (BySimulation(("V3",), known=3), ByModel(("writer: durable commits are not flushed",))),
    ),
    ProductBug(
        14,
        "a flush writes the value that is there, and so flushes nothing",
        "eventd.log.core.head.touch_head",
        log_bugs.touch_nothing,
        (
            BySuite(
                "tests/contract/log/core/test_log_durability.py"
                "::test_a_durable_transaction_that_has_nothing_to_write_flushes_what_is_not_on_the_disk",
                ("V3",),
            ),
            ByModel(("writer: a flush writes the same value",)),
        ),
    ),
    ProductBug(
        15,
        "a result does not wait for the flush that it needs",
        "eventd.log.core.writer.Writer._done",
        log_bugs.answer_before_flush,
        (
            BySuite(
                "tests/contract/log/topics/test_topic_writes.py"
                "::TestDurability::test_a_topic_that_became_durable_is_flushed_all_the_same",
                ("V3",),
            ),
            ByModel(("writer: a result does not wait for the flush",)),
        ),
    ),
    ProductBug(
        16,
        "a start does not look for lost commits",
        "eventd.log.core.head.recover",
        log_bugs.keep_epochs,
        (
            BySimulation(("V3", "V16"), known=1, kinds=("write",), change=with_power_losses),
            ByModel(("writer: a start does not look for lost commits",)),
        ),
    ),
    ProductBug(
        17,
        "every start begins a new epoch",
        "eventd.log.core.head.recover",
        log_bugs.begin_epochs_at_will,
        (BySimulation(("V16",), known=3), ByModel(("writer: every start begins a new epoch",))),
    ),
    ProductBug(
        18,
        "a log that became shorter is continued as it is",
        "eventd.log.core.head.require_whole",
        log_bugs.take_shorter_heads,
        (
            BySuite(
                "tests/contract/log/core/test_log_durability.py"
                "::test_a_log_that_lost_its_end_beneath_a_process_begins_a_new_history_beyond_it",
                ("V7",),
                needs="Postgres",
            ),
        ),
    ),
    ProductBug(
        19,
        "the head is read without a lock",
        "eventd.log.core.head.lock_head",
        log_bugs.read_heads_without_lock,
        (
            # Two appends with one head are safe: a position is taken once. An id could be forgotten as it comes back.
            BySuite(
                f"{_RETENTION}::test_an_id_that_another_process_brings_back_is_not_forgotten_meanwhile",
                ("V5",),
                needs="Postgres",
            ),
        ),
    ),
    ProductBug(
        20,
        "a wait begins after the append that it waits for",
        "eventd.log.core.wakeups.Watch.beyond",
        log_bugs.wait_for_later_heads,
        (ByModel(("wake-ups: a wait begins after the append that it waits for",)),),
    ),
    ProductBug(
        21,
        "the sign of another process is taken after the look",
        "eventd.store.engine.changes.FileChanges.wait",
        None,
        (ByModel(("wake-ups: another process's sign is taken after the look",)),),
    ),
    ProductBug(
        22,
        "known ids are not looked up",
        "eventd.log.core.append.read_known",
        log_bugs.forget_ids,
        (BySimulation(("V5",), known=5), ByModel(("link: known ids are not looked up",))),
    ),
    ProductBug(
        23,
        "a transaction continues after the database has undone it",
        "eventd.store.engine.statements.in_transaction",
        log_bugs.continue_after_rollback,
        (BySuite(f"{_TROUBLE}::test_units_are_not_tried_again_outside_of_the_transaction", ("V3",)),),
    ),
    ProductBug(
        24,
        "a failed unit is not undone to its savepoint",
        "eventd.store.engine.statements.savepoint",
        log_bugs.keep_failed_units,
        (BySuite(f"{_COMMIT}::test_a_failing_unit_is_undone_alone", ("V7", "V9")),),
    ),
    ProductBug(
        25,
        "the reorder buffer is not notified that a batch failed",
        "eventd.ingress.reorder_buffer.ReorderBuffer.forget",
        link_bugs.forget_no_failed_batches,
        (BySuite("tests/unit/ingress/test_reorder_buffer.py", ("V1",)),),
    ),
    ProductBug(
        26,
        "marks are not compared when a link is opened",
        "eventd.egress.peers.range_start.compare_mark",
        link_bugs.compare_no_marks,
        (
            ByModel(
                (
                    "link: the mark is not compared when the link is opened",
                    "link: the start of a peer is ignored",
                )
            ),
            BySuite(
                f"{_CONTIGUITY}::test_a_restored_receiver_that_sends_too_is_filled_although_nothing_new_happens",
                ("V4",),
            ),
        ),
    ),
    ProductBug(
        27,
        "a rewind keeps what was confirmed",
        "eventd.log.cursors.cursors.rewind",
        link_bugs.rewind_positions_alone,
        (
            ByModel(("link: a rewind keeps what was sent",)),
            BySuite(f"{_CURSORS}::test_a_rewind_sends_again_from_there", ("V8",)),
        ),
    ),
    ProductBug(
        28,
        "events are sent back to where they have been",
        "eventd.log.core.wire_page.PeerFilter",
        link_bugs.send_back,
        (BySimulation(("V4",), known=1),),
    ),
    ProductBug(
        29,
        "records are evicted in one transaction, and their topic's row changes in another",
        "eventd.log.retention.prefix.remove_prefix",
        log_bugs.evict_in_two_transactions,
        (BySuite(f"{_RETENTION}::test_an_eviction_that_fails_halfway_changes_nothing", ("V7", "V10")),),
    ),
    ProductBug(
        30,
        "a loss is left out of the range of a batch",
        "eventd.egress.peers.range_start.RangeStart.begin",
        link_bugs.report_no_losses,
        (
            BySimulation(("V1", "V4", "V10"), known=10, kinds=("retention",)),
            ByModel(("link: a loss is left out of the range",)),
            BySuite(
                f"{_CONTIGUITY}::test_what_retention_took_before_it_was_sent_is_a_gap_that_the_peer_is_told_of",
                ("V10",),
            ),
        ),
    ),
    ProductBug(
        31,
        "records are evicted that a peer has not got",
        "eventd.log.retention.evict",
        log_bugs.evict_held_records,
        (
            BySimulation(("V4",), known=2, kinds=("retention",)),
            BySuite(f"{_RETENTION}::test_what_a_peer_still_has_to_get_is_held", ("V4",)),
        ),
    ),
    ProductBug(
        32,
        "the place of a router and its copies are two transactions",
        "eventd.log.routers.commit.CommitSteps",
        consumer_bugs.move_routers_later,
        (BySimulation(("V12",), known=7, kinds=("route",)),),
    ),
    ProductBug(
        33,
        "the effect of a plugin's run is stored, and the cursor moved, in two transactions",
        "eventd.egress.subscriptions.sink",
        consumer_bugs.store_effects_late,
        (BySimulation(("V13",), known=2, kinds=("subscription",), change=with_kills_between_jobs),),
    ),
    ProductBug(
        34,
        "a lease is ended by a holder whose time is over",
        "eventd.store.rows.leases.Lease.is_held",
        topic_bugs.end_leases_late,
        (
            BySimulation(("V15",), known=2, kinds=("queue",)),
            ByModel(("queue: a late holder ends the lease",)),
        ),
    ),
    ProductBug(
        35,
        "the idempotency key of a write is not kept with it",
        "eventd.log.topics.write.Write",
        topic_bugs.forget_keys,
        (BySimulation(("V5",), known=20, kinds=("write",)),),
    ),
    ProductBug(
        36,
        "a deleted file is written to",
        "eventd.store.engine.file_guard.FileGuard.require",
        log_bugs.write_to_lost_files,
        (
            BySuite(
                "tests/contract/log/core/test_lost_file.py::test_what_goes_to_a_lost_file_is_refused_until_it_is_back",
                ("V3",),
            ),
        ),
    ),
    ProductBug(
        37,
        "a backup copies the database without its write-ahead log",
        "eventd.store.backup.backup.copy_pages",
        log_bugs.back_up_without_log,
        (BySuite("tests/contract/store/backup/test_copies.py", ("T3",)),),
    ),
    ProductBug(
        38,
        "an instance writes after another has taken its claim",
        "eventd.store.engine.fence.require_claim",
        log_bugs.write_without_claim,
        (
            ByModel(("two instances: a new session does not check the claim",)),
            BySuite("tests/integration/store/engine/test_fence.py", ("T2",), needs="Postgres"),
        ),
    ),
    ProductBug(
        39,
        "a manifest is written before the data of its segment",
        "eventd.lake.writer.write_segment",
        topic_bugs.name_files_before_their_data,
        (BySuite("tests/unit/lake/test_writer.py", ("V9",)),),
    ),
    ProductBug(
        40,
        "a watch continues after what its connection did not take",
        "eventd.api.listener.sending.ClientStream",
        consumer_bugs.pass_over_full_sockets,
        (BySimulation(("V14",), known=7, kinds=("watch",)),),
    ),
    ProductBug(
        41,
        "the write-ahead log is not written again after a failed flush",
        "eventd.store.engine.failed_sync.FailedSync",
        log_bugs.trust_failed_syncs,
        (BySimulation(("V3",), known=1, kinds=("write",), change=with_power_losses_after_failed_syncs),),
    ),
    ProductBug(
        42,
        "a page of a topic leaves out the records after its last one",
        "eventd.log.topics.topic_page",
        topic_bugs.pass_over_records,
        (BySimulation(("V14",), known=2, kinds=("write", "follow")),),
    ),
    ProductBug(
        43,
        "a message counts as delivered although the receiver of a callback has not answered",
        "eventd.egress.callbacks.endpoint.CallbackEndpoint.send",
        consumer_bugs.settle_without_answers,
        (BySimulation(("V11",), known=7, kinds=("callback",)),),
    ),
    ProductBug(
        44,
        "the messages of a publishing client are written in the order in which they are checked",
        "eventd.api.admin.events.publish_connection.PublishConnection",
        topic_bugs.write_messages_as_checked,
        (BySimulation(("V6",), known=1, kinds=("publishing",)),),
    ),
    ProductBug(
        45,
        "the ids of evicted events are forgotten with them",
        "eventd.log.retention.evict",
        log_bugs.forget_evicted_ids,
        (BySimulation(("V3", "V4", "V5"), known=1, kinds=("retention",)),),
    ),
    ProductBug(
        46,
        "records are evicted without a note for readers that have not got them",
        "eventd.log.retention.prefix.remove_prefix",
        log_bugs.record_no_losses,
        (BySimulation(("V10", "V14"), known=15, kinds=("retention", "follow")),),
    ),
    ProductBug(
        47,
        "a loss of own events is reported only with the next event",
        "eventd.egress.peers.range_start.RangeStart.must_report",
        link_bugs.report_losses_with_the_next_event,
        (BySimulation(("V4",), known=10, kinds=("retention",)),),
    ),
    ProductBug(
        48,
        "the id of an event from before a new epoch is taken for one of the new epoch",
        "eventd.api.topics.topic_progress.TopicProgress.continue_after",
        consumer_bugs.take_ids_for_new,
        (BySimulation(("V14",), known=1, kinds=("renewal",)),),
    ),
    ProductBug(
        50,
        "no commit on Postgres waits for the disk",
        "eventd.store.engine.database.Database.transaction",
        log_bugs.commit_without_flushing,
        (
            BySuite(
                "tests/integration/simulation/test_postgres.py::test_a_run_on_postgres_violates_nothing",
                ("V3",),
                needs="Postgres",
            ),
        ),
    ),
    ProductBug(
        51,
        "a lost connection to Postgres is used again",
        "eventd.store.engine.thread_pool.ThreadConnections",
        log_bugs.keep_lost_connections,
        (
            BySuite(
                "tests/integration/simulation/test_postgres.py::test_a_run_on_postgres_violates_nothing",
                ("V1", "V19"),
                needs="Postgres",
            ),
        ),
    ),
    ProductBug(
        55,
        "the epoch of a client's seq is not compared when it begins to watch",
        "eventd.api.topics.start.TopicSnapshot.epoch_of",
        consumer_bugs.compare_no_epochs,
        (BySimulation(("V10",), known=1, kinds=("watch",)),),
    ),
    ProductBug(
        56,
        "a router changes the data of the records that it copies",
        "eventd.log.routers.source.CopyPage",
        consumer_bugs.change_copies,
        (BySimulation(("V7",), known=1, kinds=("route",)),),
    ),
    ProductBug(
        57,
        "an event is sent to a receiver with the data of another one",
        "eventd.egress.callbacks.formats",
        consumer_bugs.send_data_of_others,
        (BySimulation(("V7",), known=1, kinds=("callback",)),),
    ),
    ProductBug(
        58,
        "a client of a WebSocket gets no records after the first new ones",
        "eventd.api.topics.client_stream.FollowedTopic.take",
        consumer_bugs.stop_after_news,
        (BySimulation(("V14",), known=4, kinds=("socket",)),),
    ),
    ProductBug(
        59,
        "an event that is refused again leaves no dead letter",
        "eventd.egress.loop.sink.dead_letters",
        link_bugs.keep_no_letters_of_repairs,
        (BySimulation(("V4",), known=1, kinds=("conflict",)),),
    ),
    ProductBug(
        60,
        "events are evicted by their age long before they are old",
        "eventd.log.retention.evict",
        log_bugs.evict_too_early,
        (BySimulation(("V3",), known=5, kinds=("retention",)),),
    ),
    ProductBug(
        61,
        "no event is evicted because of its age",
        "eventd.log.retention.evict",
        log_bugs.keep_what_is_old,
        (BySimulation(("V1",), known=15, kinds=("retention",)),),
    ),
    ProductBug(
        62,
        "the ledger of a sender lacks the losses that it reports",
        "eventd.egress.peers.peer.PeerSink",
        link_bugs.note_no_losses,
        (BySimulation(("V10",), known=10, kinds=("retention",)),),
    ),
    ProductBug(
        63,
        "a session that continues in its topic gets a tombstone",
        "eventd.api.topics.topic_progress.TopicProgress.continue_after",
        consumer_bugs.continue_with_tombstones,
        (BySimulation(("V14",), known=1, kinds=("renewal",)),),
    ),
)
"""All seeded bugs in the order of their numbers."""
