-- On which node does a rule report more than on other nodes with the same GPU model?
-- Shows the share of the node's windows with a finding of the rule, and the median share over the nodes with this model.
-- Needs three nodes with ten windows each; a node without a finding counts with zero.
-- since: 7d
WITH judged AS (
    SELECT gpu_name, hostname, found FROM windows
    WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until') AND found IS NOT NULL
), nodes AS (
    SELECT gpu_name, hostname, count(*) AS windows_count, count(*) OVER (PARTITION BY gpu_name) AS nodes_count
    FROM judged GROUP BY gpu_name, hostname HAVING count(*) >= 10
), counts AS (
    SELECT gpu_name, hostname, rule, count(*) AS found_count
    FROM (SELECT gpu_name, hostname, unnest(found) AS rule FROM judged) GROUP BY ALL
), compared AS (
    SELECT gpu_name, rule, hostname, windows_count, coalesce(found_count, 0) / windows_count AS found_ratio,
           median(coalesce(found_count, 0) / windows_count) OVER (PARTITION BY gpu_name, rule) AS usual_ratio
    FROM nodes JOIN (SELECT DISTINCT gpu_name, rule FROM counts) USING (gpu_name) LEFT JOIN counts USING (gpu_name, hostname, rule)
    WHERE nodes_count >= 3
)
SELECT gpu_name, rule, hostname, found_ratio, usual_ratio, windows_count
FROM compared WHERE found_ratio > 0.05 + 2 * usual_ratio ORDER BY found_ratio - usual_ratio DESC, hostname, rule
