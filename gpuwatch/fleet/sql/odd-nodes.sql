-- On which node does a rule report more than on other nodes with the same GPU model?
-- Shows the share of the node's windows with a finding of the rule, and the usual share over the nodes with this model.
-- Needs ten windows per node, and three nodes.
-- since: 7d
WITH counted AS (
    SELECT gpu_name, hostname, found, count(*) OVER (PARTITION BY gpu_name, hostname) AS all_count,
           count(DISTINCT hostname) OVER (PARTITION BY gpu_name) AS nodes_count
    FROM windows WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until') AND found IS NOT NULL
), shares AS (
    SELECT gpu_name, hostname, rule, any_value(nodes_count) AS nodes_count, any_value(all_count) AS windows_count,
           count(*) / any_value(all_count) AS found_ratio
    FROM (SELECT *, unnest(found) AS rule FROM counted) GROUP BY ALL HAVING any_value(all_count) >= 10
), compared AS (  -- usual_ratio is zero if at least half of the nodes have no such finding
    SELECT *, CASE WHEN 2 * count(*) OVER work <= nodes_count THEN 0 ELSE
        quantile_cont(found_ratio, 0.5) OVER work END AS usual_ratio
    FROM shares WHERE nodes_count >= 3 WINDOW work AS (PARTITION BY gpu_name, rule)
)
SELECT gpu_name, rule, hostname, found_ratio, usual_ratio, windows_count
FROM compared WHERE found_ratio > 0.05 + 2 * usual_ratio ORDER BY found_ratio - usual_ratio DESC, hostname, rule
