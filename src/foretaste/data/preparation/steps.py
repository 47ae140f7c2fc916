"""The steps of preparation as SQL texts, by subject; `Pipeline.run` has their order.

Each text is a query whose result the caller keeps as a table, ``PAIRS`` as ``pairs`` and the like.
The first query reads ``raw``, with one row per row of the source: ``user_id, item_id, rating,
time`` and, if requested, ``weight`` and ``event``. DuckDB and Spark share the SQL. The caller fills
in names in braces: spellings that differ by engine, and all other parameters.

``*_code`` numbers the sorted distinct kept ids. ``*_index`` numbers the rows of the finished
dataset, training rows first. ``time`` is constant without a time column. In a given split ``raw``
also has ``part``, the number of a row's part.
"""

from __future__ import annotations

OF_EVENTS = "event IN ({events})"

RATED = "rating >= {min_rating}"

# Rows of what a user disliked: they train no model, and lists leave their items out.
SEEN_ROWS = "SELECT user_id, item_id FROM {previous} WHERE {condition}"

# The pairs of these rows that have no kept row.
SEEN = """
(SELECT DISTINCT user_code, item_code
 FROM ({rows}) JOIN users USING (user_id) JOIN items USING (item_id)
 ANTI JOIN train USING (user_code, item_code)
 ANTI JOIN held USING (user_code, item_code))
"""

FREQUENT_ITEMS = """
SELECT item_id FROM {previous} GROUP BY item_id HAVING count(DISTINCT user_id) >= {min_item_users}
"""

# Repeats count: the reference systems drop them after this filter.
ACTIVE_USERS = """
SELECT user_id FROM {previous} GROUP BY user_id HAVING count(*) >= {min_user_interactions}
"""

# ``user_codes`` and ``item_codes``. Numbers follow the sorted ids, never their first appearance:
# the order of rows must not change the dataset. Spark gathers a row_number without PARTITION BY
# into one task, so it runs over the distinct ids only.
CODES = """
SELECT {kind}_id, CAST(row_number() OVER (ORDER BY {kind}_id) - 1 AS INTEGER) AS {kind}_code,
       num_rows
FROM (SELECT {kind}_id, count(*) AS num_rows FROM {previous} GROUP BY {kind}_id)
"""

# A repeated pair keeps its earliest time, in a given split the time of the first part with the
# pair. Codes sort faster than ids. Sorting the rows of each user takes half the time of GROUP BY
# user, item, because most pairs appear once.
#
# Copies, rows with the user, item and time of another row, stay until they are counted. Their
# weights and ratings are not compared: a sort of these too takes twice the time.
PAIRS = """
SELECT user_code, item_code, time{part}, previous_item IS NOT DISTINCT FROM item_code AS is_copy
FROM (
    SELECT user_code, item_code, {time} AS time{part},
           lag(item_code) OVER mine AS previous_item, lag({time}) OVER mine AS previous_time
    FROM {previous}
    JOIN user_codes USING (user_id)
    JOIN item_codes USING (item_id)
    WINDOW mine AS (PARTITION BY user_code ORDER BY item_code{part}, time))
WHERE previous_item IS DISTINCT FROM item_code OR {is_copy}
"""

HAS_TIME_OF_PREVIOUS = "previous_time = time"

# Ranks of a given split begin again in each part.
RANK_IN_PARTS = "part * CAST(1099511627776 AS BIGINT) + time"

# The place of each pair among the pairs of its user, 0 the oldest. Pairs of equal times share the
# lowest of their places.
RANKED = """
SELECT user_code, item_code, time{part},
       CAST(rank() OVER places - 1 AS INTEGER) AS position,
       rank() OVER places <> row_number() OVER places AS is_tied_back,
       coalesce(time = lead(time) OVER places, false) AS is_tied_on
FROM pairs WHERE NOT is_copy
WINDOW places AS (PARTITION BY user_code ORDER BY time)
"""

# A hash orders equal times: in ml-100k 44 % of users have several interactions at their last time,
# and that order changes 30 % of the test items. Only pairs of equal times are hashed. The pair with
# the lowest hash is the newest.
PLACES_OF_TIED = """
SELECT user_code, item_code, time{part}, CAST(position + row_number() OVER (
           PARTITION BY user_code, position ORDER BY md5({pair_key}) DESC) - 1 AS INTEGER
       ) AS position, true AS is_tied
FROM ranked
JOIN user_codes USING (user_code)
JOIN item_codes USING (item_code)
WHERE is_tied_back OR is_tied_on
"""

# ``pairs``, without a copy of the pairs that do not tie.
PLACED = """
SELECT user_code, item_code, time{part}, position, false AS is_tied
FROM ranked WHERE NOT (is_tied_back OR is_tied_on)
UNION ALL
SELECT * FROM places_of_tied
"""

# The last interaction of each user with three or more is test, the one before it validation.
HELD_LEAVE_ONE_OUT = """
SELECT user_code, item_code{position}, is_tied,
       CASE WHEN position = num_pairs - 1 THEN 'test' ELSE 'validation' END AS part
FROM pairs JOIN (
    SELECT user_code, count(*) AS num_pairs
    FROM pairs GROUP BY user_code HAVING count(*) >= 3) USING (user_code)
WHERE position >= num_pairs - {num_held}
"""

# Users with two items or more, in the order of a hash: the first {num_test} are test, the next
# {num_validation} validation. A fifth of their items is the target, at least one. The share is an
# inequality of integers, which no engine rounds.
HELD_USERS = """
SELECT user_code, item_code{position},
       part || CASE WHEN nth = 1 OR nth * 1000 <= num_pairs * 200
                    THEN '_target' ELSE '_fold_in' END AS part
FROM (
    SELECT user_code, item_code{position}, part,
           row_number() OVER (PARTITION BY user_code ORDER BY md5({pair_key})) AS nth,
           count(*) OVER (PARTITION BY user_code) AS num_pairs
    FROM pairs
    JOIN item_codes USING (item_code)
    JOIN (
        SELECT user_code, user_id,
               CASE WHEN nth <= {num_test} THEN 'test' ELSE 'validation' END AS part
        FROM (
            SELECT user_code, user_id, row_number() OVER (ORDER BY md5({user_key})) AS nth
            FROM user_codes
            WHERE user_code IN (
                SELECT user_code FROM pairs GROUP BY user_code HAVING count(*) >= 2))
        WHERE nth <= {num_test} + {num_validation}) USING (user_code))
"""

# The latest times, down to the time of the first held-out interaction, with their numbers of
# interactions.
LATEST_TIMES = """
SELECT time, num_pairs, sum(num_pairs) OVER (ORDER BY time DESC) - num_pairs AS num_later
FROM (
    SELECT time, count(*) AS num_pairs FROM pairs
    WHERE time >= (
        SELECT min(time) FROM (
            SELECT time FROM pairs
            ORDER BY time DESC LIMIT {num_test} + {num_validation}))
    GROUP BY time)
"""

TIED_AT_CUTS = """
SELECT coalesce(sum(num_pairs), 0) FROM latest_times
WHERE {num_test} BETWEEN num_later + 1 AND num_later + num_pairs - 1
   OR {num_test} + {num_validation} BETWEEN num_later + 1 AND num_later + num_pairs - 1
"""

# The latest {num_test} interactions are test, the {num_validation} before them validation. The
# join cuts by time alone, so most rows are neither counted nor hashed. Codes break the tie of
# pairs with the same key: user a:b with item c, and user a with item b:c.
HELD_TEMPORAL = """
SELECT user_code, item_code{position},
       CASE WHEN nth <= {num_test} THEN 'test' ELSE 'validation' END AS part
FROM (
    SELECT user_code, item_code{position}, num_later + row_number() OVER (
        PARTITION BY time ORDER BY md5({pair_key}), user_code, item_code) AS nth
    FROM pairs
    JOIN latest_times USING (time)
    JOIN user_codes USING (user_code)
    JOIN item_codes USING (item_code)
    WHERE num_later < {num_test} + {num_validation})
WHERE nth <= {num_test} + {num_validation}
"""

# The newest items, by their first interaction if times are real: the first {num_test} are test, the
# next {num_validation} validation. A hash orders the items of equal times.
HELD_NEW_ITEMS = """
SELECT user_code, item_code{position},
       CASE WHEN nth <= {num_test} THEN 'test' ELSE 'validation' END AS part
FROM pairs JOIN (
    SELECT item_code, row_number() OVER (
        ORDER BY {first_time} DESC, md5({item_key}), item_code) AS nth
    FROM item_codes JOIN (
        SELECT item_code, min(time) AS first_time FROM pairs GROUP BY item_code
    ) USING (item_code)) USING (item_code)
WHERE nth <= {num_test} + {num_validation}
"""

# The training pairs of a run. Ids are compared as text.
TRAINED_PAIRS = """
SELECT user_code, item_code
FROM (SELECT * FROM ({histories}) WHERE in_training)
JOIN (SELECT user_index, CAST(user_id AS STRING) AS user_text FROM ({users})) USING (user_index)
JOIN (SELECT item_index, CAST(item_id AS STRING) AS item_text FROM ({items})) USING (item_index)
JOIN (SELECT user_code, CAST(user_id AS STRING) AS user_text FROM user_codes) USING (user_text)
JOIN (SELECT item_code, CAST(item_id AS STRING) AS item_text FROM item_codes) USING (item_text)
"""

# The pairs outside of the run's training, of users with a pair in it.
UNSEEN_PAIRS = """
SELECT user_code, item_code{position}
FROM pairs ANTI JOIN trained_pairs USING (user_code, item_code)
WHERE user_code IN (
    SELECT user_code FROM pairs JOIN trained_pairs USING (user_code, item_code))
"""

# The first {num_test} users with unseen pairs, in the order of a hash, with all of these pairs.
HELD_UNSEEN = """
SELECT user_code, item_code{position}, 'test' AS part
FROM unseen_pairs JOIN (
    SELECT user_code, row_number() OVER (ORDER BY md5({user_key})) AS nth
    FROM user_codes WHERE user_code IN (SELECT user_code FROM unseen_pairs)) USING (user_code)
WHERE nth <= {num_test}
"""

# Users whose times are their own ranks: 0 to n-1, or 1 to n.
RANKED_USERS = """
SELECT count(*), count(CASE WHEN first IN (0, 1) AND last - first + 1 = num_rows THEN 1 END)
FROM (
    SELECT min(time) AS first, max(time) AS last, count(*) AS num_rows FROM raw GROUP BY user_id)
"""

HELD_NOTHING = """
SELECT user_code, item_code{position}, 'none' AS part FROM pairs WHERE 1 = 0
"""

HELD_GIVEN = """
SELECT user_code, item_code{position}, CASE part {cases} END AS part FROM pairs WHERE part > 0
"""

HELD = {
    "leave-one-out": HELD_LEAVE_ONE_OUT,
    "held-out-users": HELD_USERS,
    "temporal": HELD_TEMPORAL,
    "new-items": HELD_NEW_ITEMS,
    "unseen": HELD_UNSEEN,
    "given": HELD_GIVEN,
    "none": HELD_NOTHING,
}
"""The query of the held-out pairs, by protocol."""

DISTINCT_HELD = """
SELECT part, count(*) FROM (SELECT DISTINCT user_id, item_id, part FROM {previous} WHERE part > 0)
GROUP BY part
"""

TRAIN_GIVEN = "SELECT user_code, item_code{position} FROM pairs WHERE part = 0"

FOLD_IN_ELSEWHERE = """
SELECT count(*), min(user_id) FROM user_codes
WHERE user_code IN (SELECT user_code FROM held WHERE part = '{split}_fold_in')
  AND (user_code IN (SELECT user_code FROM train)
       OR user_code IN (SELECT user_code FROM held WHERE part NOT LIKE '{split}%'))
"""

# The test knows the validation part.
WITHOUT_HISTORY = """
(SELECT DISTINCT user_code FROM held WHERE part = '{target}'
 AND user_code NOT IN (SELECT user_code FROM train)
 AND user_code NOT IN (SELECT user_code FROM held WHERE part IN ({known})
                       AND item_code IN (SELECT item_code FROM train)))
"""

WITHOUT_TARGET = """
(SELECT DISTINCT user_code FROM held WHERE part = '{split}_fold_in'
 AND user_code NOT IN (SELECT user_code FROM held WHERE part = '{split}_target'))
"""

# The training pairs with their weights. Rows are added up in whole numbers of a ``unit``, because
# sums of integers do not depend on the order of rows, and sums of floats do. The unit is a power of
# two, 2^-81 of a power of two above the largest row. No row weighs less than ``least``, 2^20 units.
BITS_OF_LEAST = 20
BITS_OF_ROW = 81

ROWS_OF_TRAIN = """
SELECT user_code, item_code{position}, time, {weight} AS weight FROM {previous}
JOIN user_codes USING (user_id)
JOIN item_codes USING (item_id)
JOIN train USING (user_code, item_code)
"""

# Under a protocol by time, later rows of a training pair may lie in the held-out time. So the times
# of the pairs' first rows are taken.
PAIRS_OF_TRAIN = "(SELECT time FROM pairs SEMI JOIN train USING (user_code, item_code))"

# Ages count from the ``latest`` time: the last one, or the last one before a gap if no more than
# {most_after} rows follow the gap. One row dated 2099 would age all others to nothing.
AGES = """
SELECT last, coalesce(before_gap, last) AS latest
FROM (SELECT max(time) AS last FROM {times}) CROSS JOIN (
    SELECT min(previous) AS before_gap
    FROM (
        SELECT time, lag(time) OVER (ORDER BY time) AS previous
        FROM (SELECT time FROM {times} ORDER BY time DESC LIMIT {most_after} + 1))
    WHERE CAST(time AS DOUBLE) - CAST(previous AS DOUBLE) > {gap})
"""

ROW_WEIGHTS = "SELECT weight{decay} AS weight FROM rows_of_train JOIN ages ON time <= last"

# A double represents whole numbers below 2^53. So a number of units is cut into three numbers of 27
# bits, whose sums over a hundred million rows are exact; {weight} is at least the unit.
CUT = """
SELECT *, CAST(floor(rest - middle * CAST(134217728 AS DOUBLE) + CAST(0.5 AS DOUBLE)) AS BIGINT)
       AS low
FROM (
    SELECT *, CAST(floor(rest / 134217728) AS BIGINT) AS middle
    FROM (
        SELECT *, units - high * CAST(18014398509481984 AS DOUBLE) AS rest
        FROM (
            SELECT *, CAST(floor(units / CAST(18014398509481984 AS DOUBLE)) AS BIGINT) AS high
            FROM (SELECT *, {weight} / {unit} AS units FROM {previous}))))
"""

WEIGHTED_TRAIN = """
SELECT user_code, item_code{position}, CAST({scaled} AS FLOAT) AS weight
FROM (
    SELECT user_code, item_code{position},
           ((CAST(sum(high) AS DOUBLE) * 134217728 + CAST(sum(middle) AS DOUBLE)) * 134217728
            + CAST(sum(low) AS DOUBLE)) * {unit} AS total
    FROM ({cut})
    GROUP BY user_code, item_code{position})
"""

AFTER_GAP = "FROM rows_of_train JOIN ages ON time > latest AND time <= last"

# Below 2^-16 three terms of the series are exact to 2^-48, and 1 + total is not.
SCALED = {
    "linear": "total",
    "log": """CASE WHEN total < 1 / CAST(65536 AS DOUBLE)
        THEN total * (1 - total / 2 + total * total / 3) * CAST(1.4426950408889634 AS DOUBLE)
        ELSE log2(1 + total) END""",
}
"""SQL of a pair's weight by scale."""

# Engines differ in the last digit of a power. So 2^x is the power of the whole part, which is
# exact, times the power of the rest, which is from 1 to 2 and rounded to steps of 2^-20.
DECAY = (
    " * (floor(power(CAST(2 AS DOUBLE), {age} - floor({age})) * 1048576 + CAST(0.5 AS DOUBLE))"
    " / 1048576) * power(CAST(2 AS DOUBLE), floor({age}))"
)
AGE = "(CAST(least(time - latest, 0) AS DOUBLE) / {half_life})"

# The numbers of rows with too small and too large weights, with one example of each, and the
# smallest weight above 0.
WEIGHTS_REFUSED = """
SELECT count(CASE WHEN weight <= 0 THEN 1 END), min(weight),
       count(CASE WHEN {weight} > {most} THEN 1 END),
       max(CASE WHEN {weight} > {most} THEN weight END),
       min(CASE WHEN weight > 0 THEN weight END)
FROM {previous}
"""

WEIGHTS_OF_TRAIN = """
SELECT min(weight), max(weight), sum(high), sum(middle), sum(low) FROM ({cut})
"""

# Keys of the hashes. A hash, unlike a random draw, does not depend on the order of rows, on threads
# or on the engine.
USER_KEY = "'{seed}:' || CAST(user_id AS STRING)"
ITEM_KEY = "'{seed}:' || CAST(item_id AS STRING)"
PAIR_KEY = "'{seed}:' || CAST(user_id AS STRING) || ':' || CAST(item_id AS STRING)"

TRAIN = """
SELECT user_code, item_code{position} FROM pairs ANTI JOIN held USING (user_code, item_code)
"""

FINDABLE = """
SELECT * FROM held
WHERE part LIKE '%_fold_in' OR item_code IN (SELECT item_code FROM train)
"""

SIZES_OF_ITEMS = """
SELECT count(*), count(CASE WHEN in_catalogue THEN 1 END), count(CASE WHEN {is_listed} THEN 1 END)
FROM items
"""

# The numbers of interactions and users of each held-out part.
SIZES_OF_PARTS = "SELECT part, count(*), count(DISTINCT user_code) FROM {rows} GROUP BY part"

# The same numbers, and the numbers of interactions with items that training never saw, and with
# items that no list has.
SIZES_AND_UNSEEN = """
SELECT part, count(*), count(DISTINCT user_code), count(CASE WHEN NOT in_catalogue THEN 1 END),
       count(CASE WHEN NOT {is_listed} THEN 1 END)
FROM held JOIN items USING (item_code) GROUP BY part
"""

# The numbers of items of each held-out part, and of its items that no list has.
ITEMS_OF_PARTS = """
SELECT part, count(*), count(CASE WHEN NOT is_listed THEN 1 END)
FROM (SELECT DISTINCT part, item_code FROM held) JOIN items USING (item_code) GROUP BY part
"""

# Training users come first, then the others, both in the order of their ids.
USERS = """
SELECT user_code, user_id, part,
       CAST(row_number() OVER (
           ORDER BY CASE WHEN part = 'train' THEN 0 ELSE 1 END, user_code) - 1 AS INTEGER
       ) AS user_index
FROM user_codes JOIN (
    SELECT user_code, 'train' AS part FROM (SELECT DISTINCT user_code FROM train)
    UNION ALL
    SELECT user_code, max(CASE WHEN part LIKE 'test%' THEN 'test' ELSE 'validation' END) AS part
    FROM held ANTI JOIN train USING (user_code)
    GROUP BY user_code) USING (user_code)
"""

# The catalogue, which is the items of training, comes first; then items that only held-out rows
# have.
ITEMS = """
SELECT item_codes.item_code, item_id, in_catalogue.item_code IS NOT NULL AS in_catalogue,
       CAST(row_number() OVER (
           ORDER BY CASE WHEN in_catalogue.item_code IS NULL THEN 1 ELSE 0 END,
                    item_codes.item_code) - 1 AS INTEGER
       ) AS item_index
FROM item_codes LEFT JOIN (SELECT DISTINCT item_code FROM train) AS in_catalogue
    ON item_codes.item_code = in_catalogue.item_code
WHERE in_catalogue.item_code IS NOT NULL OR item_codes.item_code IN (SELECT item_code FROM held)
"""

# Features. ``values_of_items`` has the distinct values of each id of the items file, as text.
KNOWN_ITEMS = "SELECT DISTINCT CAST(item_id AS STRING) AS described_id FROM {previous}"

# The ids of the items file that no row of the source has, without {others}. ``item_id`` is NULL if
# an id is not of the type of the source's ids.
NEW_IDS = """
SELECT DISTINCT described_id, {new_id} AS item_id
FROM described ANTI JOIN known_items USING (described_id)
WHERE described_id NOT IN ({others})
"""

# All items that may be in lists.
LISTABLE = """
SELECT CAST(item_id AS STRING) AS described_id, item_id, item_code, in_catalogue FROM items
UNION ALL
SELECT described_id, item_id, CAST(NULL AS INTEGER) AS item_code, FALSE AS in_catalogue
FROM new_ids SEMI JOIN values_of_items USING (described_id) WHERE item_id IS NOT NULL
"""

SIZES_OF_VALUES = """
SELECT column_number, value, count(*) AS size
FROM values_of_items JOIN listable USING (described_id) GROUP BY column_number, value
"""

# A value of one item says nothing about others, and a value of most items says nothing at all.
FEATURE_VALUES = """
SELECT column_number, value,
       CAST(row_number() OVER (ORDER BY column_number, value) - 1 AS INTEGER) AS value_index
FROM sizes_of_values WHERE size BETWEEN 2 AND {most}
"""

SIZES_OF_COLUMNS = """
SELECT column_number, count(*), count(CASE WHEN size > 1 THEN 1 END)
FROM sizes_of_values GROUP BY column_number
"""

ITEMS_WITH_VALUE = """
SELECT column_number, count(DISTINCT described_id) FROM values_of_items
JOIN (SELECT CAST(item_id AS STRING) AS described_id FROM items) USING (described_id)
GROUP BY column_number
"""

COUNTS_OF_NEW = """
SELECT count(*), count(item_index), count(CASE WHEN new_ids.item_id IS NULL THEN 1 END),
       min(CASE WHEN new_ids.item_id IS NULL THEN described_id END)
FROM new_ids LEFT JOIN items ON CAST(items.item_id AS STRING) = described_id
"""

# The catalogue comes first, then other items with a value, then the rest. Items without
# interactions get codes of their own, below zero.
LISTED_ITEMS = """
SELECT coalesce(item_code, CAST(-row_number() OVER (ORDER BY item_id) AS INTEGER)) AS item_code,
       item_id, in_catalogue, is_listed,
       CAST(row_number() OVER (ORDER BY CASE WHEN in_catalogue THEN 0 WHEN is_listed THEN 1 ELSE 2
                                        END, item_id) - 1 AS INTEGER) AS item_index
FROM (
    SELECT item_code, item_id, in_catalogue,
           in_catalogue OR with_value.described_id IS NOT NULL AS is_listed
    FROM listable LEFT JOIN (
        SELECT DISTINCT described_id FROM values_of_items
        JOIN feature_values USING (column_number, value)) AS with_value
        ON listable.described_id = with_value.described_id)
WHERE is_listed OR item_code IS NOT NULL
"""

# Candidates of a given split. Ids are compared as text. A line of the NCF paper's files has
# (user,item) and then the candidates, with tabs between them.
CANDIDATE_LINES = """
SELECT {line} AS line,
       nullif(trim(regexp_extract({line}, '^{pattern}$', 1)), '') AS user_text,
       trim(regexp_extract({line}, '^{pattern}$', 2)) AS item_text
FROM {relation} WHERE {line} <> ''
"""

LINES_OF_ONE_PAIR = """
(SELECT user_text FROM candidate_lines GROUP BY user_text, item_text HAVING count(*) > 1)
"""

LINES_WITHOUT_TEST = """
SELECT count(*), min(line) FROM candidate_lines ANTI JOIN (
    SELECT CAST(user_id AS STRING) AS user_text, CAST(item_id AS STRING) AS item_text
    FROM raw WHERE part = {number}) USING (user_text, item_text)
"""

CANDIDATES_OF_LINES = """
SELECT user_text, trim(item_text) AS item_text
FROM (SELECT user_text, {fields} AS item_text FROM candidate_lines)
"""

# A candidate that training never saw has a score only if its features list it. A repeated candidate
# counts once.
CANDIDATES_OF_USERS = """
SELECT user_code, item_text, item_code, coalesce(is_listed, FALSE) AS is_listed,
       count(*) AS num_rows
FROM given_candidates
JOIN (
    SELECT user_code, CAST(user_id AS STRING) AS user_text FROM users
    WHERE user_code IN (SELECT user_code FROM held WHERE part = '{part}')) USING (user_text)
LEFT JOIN (
    SELECT item_code, CAST(item_id AS STRING) AS item_text, {is_listed} AS is_listed FROM items)
    USING (item_text)
GROUP BY user_code, item_text, item_code, is_listed
"""

CANDIDATES = """
SELECT user_code, item_code FROM candidates_of_users
ANTI JOIN (SELECT user_code, item_code FROM held WHERE part = '{part}')
    USING (user_code, item_code)
WHERE is_listed
"""

COUNTS_OF_CANDIDATES = {
    "num_test_users_with_target_among_candidates": """
(SELECT DISTINCT user_code FROM candidates_of_users
 SEMI JOIN (SELECT user_code, item_code FROM held WHERE part = '{part}')
    USING (user_code, item_code))
""",
    "num_test_candidates": "candidates",
    "num_test_candidates_unseen_in_training": "candidates_of_users WHERE NOT is_listed",
    "num_test_candidates_in_training": """
candidates_of_users SEMI JOIN train USING (user_code, item_code)
""",
    "num_test_candidates_given_twice": "candidates_of_users WHERE num_rows > 1",
    "num_test_users_with_fewer_candidates": """
(WITH sizes AS (SELECT user_code, count(*) AS size FROM candidates_of_users GROUP BY user_code)
 SELECT user_code FROM sizes WHERE size < (
    SELECT size FROM sizes GROUP BY size ORDER BY count(*) DESC, size DESC LIMIT 1))
""",
}
"""Relations whose rows are counted, by the names of the counts. Users with fewer candidates have
fewer than most users."""

USERS_WITHOUT_CANDIDATES = """
SELECT count(*), min(user_id) FROM users
WHERE user_code IN (SELECT user_code FROM held WHERE part = '{part}')
  AND user_code NOT IN (SELECT user_code FROM candidates)
"""

# The content of the files, in the order of their rows.
PAIRS_FILE = """
SELECT user_index, item_index{columns}
FROM {rows} JOIN users USING (user_code) JOIN items USING (item_code)
ORDER BY user_index, item_index
"""

USERS_FILE = "SELECT user_index, {user_id} AS user_id, part FROM users ORDER BY user_index"

ITEMS_FILE = """
SELECT item_index, {item_id} AS item_id{item_columns} FROM items{described} ORDER BY item_index
"""

FEATURES_FILE = """
SELECT item_index, value_index
FROM values_of_items JOIN feature_values USING (column_number, value)
JOIN (SELECT item_index, CAST(item_id AS STRING) AS described_id FROM items) USING (described_id)
ORDER BY item_index, value_index
"""

FEATURE_VALUES_FILE = """
SELECT value_index, CASE column_number {cases} END AS "column", value FROM feature_values
ORDER BY value_index
"""

# Further columns from a file of items. Ids are compared as text.
DESCRIBED = " LEFT JOIN described ON CAST(item_id AS STRING) = described_id"

# The kept items with several titles.
SEVERAL_TITLES = """
items WHERE CAST(item_id AS STRING) IN (SELECT described_id FROM several_titles)
"""
