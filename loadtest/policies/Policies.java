import io.admissiongateway.worker.Denied;
import io.admissiongateway.worker.PolicyServer;
import io.admissiongateway.worker.Review;
import java.util.List;
import java.util.function.Predicate;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/** The policies of the load tests; package {@code loadtest.policies} describes them. */
public final class Policies {
    private static final List<String> LABELS =
            List.of("app", "owner", "env", "cost", "component", "version", "part-of");

    private Policies() {}

    private static void requireLabel(Review review, String label) {
        if (review.object().path("metadata").path("labels").path(label).stringValue("").isEmpty()) {
            throw new Denied("label " + label + " is required").field("metadata.labels");
        }
    }

    private static JsonNode containers(Review review) {
        return review.object().path("spec").path("containers");
    }

    private static void check(Review review, String problem, Predicate<JsonNode> isDenied) {
        for (JsonNode container : containers(review)) {
            if (isDenied.test(container)) {
                throw new Denied("container " + container.path("name").stringValue("") + " " + problem);
            }
        }
    }

    private static boolean isUnlimited(JsonNode container) {
        JsonNode limits = container.path("resources").path("limits");
        return limits.path("cpu").isMissingNode() || limits.path("memory").isMissingNode();
    }

    private static void alwaysPull(Review review) {
        for (JsonNode container : containers(review)) {
            ((ObjectNode) container).put("imagePullPolicy", "Always");
        }
    }

    private static void addLabel(Review review) {
        ((ObjectNode) review.object()).withObject("/metadata/labels").put("managed", "true");
    }

    private static void addToleration(Review review) {
        ArrayNode tolerations = ((ObjectNode) review.object()).withArray("/spec/tolerations");
        for (JsonNode toleration : tolerations) {
            if (toleration.path("key").stringValue("").equals("dedicated")) {
                return;
            }
        }
        tolerations.addObject().put("key", "dedicated").put("operator", "Exists").put("effect", "NoSchedule");
    }

    private static void defaultRequests(Review review) {
        for (JsonNode container : containers(review)) {
            if (container.path("resources").path("requests").isMissingNode()) {
                ((ObjectNode) container).withObject("/resources/requests").put("cpu", "100m").put("memory", "128Mi");
            }
        }
    }

    /** Serves them; {@code --help} lists the options. */
    public static void main(String[] args) {
        PolicyServer server = new PolicyServer();
        for (String label : LABELS) {
            server.policy("require-" + label, "", review -> requireLabel(review, label));
        }
        server.policy(
                        "deny-privileged",
                        "",
                        review -> check(
                                review,
                                "is privileged",
                                one -> one.path("securityContext").path("privileged").booleanValue(false)))
                .policy(
                        "deny-latest",
                        "",
                        review -> check(
                                review,
                                "has the tag latest",
                                one -> one.path("image").stringValue("").endsWith(":latest")))
                .policy("require-limits", "", review -> check(review, "has no limits", Policies::isUnlimited))
                .mutating("always-pull", "", Policies::alwaysPull)
                .mutating("add-label", "", Policies::addLabel)
                .mutating("add-toleration", "", Policies::addToleration)
                .mutating("default-requests", "", Policies::defaultRequests)
                .main(args);
    }
}
